import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams: a KTable of users left-joined with a KTable of accounts, both in memory, by the message key.
 * Runs as a single source file; prints one JSON object per line.
 * Arguments: bootstrap, users topic, accounts topic, keys, newest account type, end of the newest name.
 */
public class StreamsJoin {
    record User(String userId, String name, String email, long age) {}

    record Account(String userId, String accountType, double balance) {}

    record Final(User user, Account account) {}

    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        int keys = Integer.parseInt(arguments[3]);
        String newest = arguments[4], lastName = arguments[5];
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench-" + System.nanoTime());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("bench-streams").toString());
        settings.put("auto.offset.reset", "earliest");
        settings.put("replication.factor", 1);
        // With the default cache of 10 MB, the last changes are forwarded at the next commit, up to 30 seconds later.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);

        Set<String> complete = ConcurrentHashMap.newKeySet();
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, User> users = table(builder, arguments[1], "users", User.class);
        KTable<String, Account> accounts = table(builder, arguments[2], "accounts", Account.class);
        users.leftJoin(accounts, Final::new).toStream().foreach((key, row) -> {
            if (row != null && row.account() != null && newest.equals(row.account().accountType())
                    && row.user().name().endsWith(lastName)) {
                complete.add(key);
            }
        });
        Properties optimized = new Properties();
        optimized.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        settings.putAll(optimized);
        KafkaStreams streams = new KafkaStreams(builder.build(optimized), settings);
        say("started", 0);
        long started = System.nanoTime();
        streams.start();
        while (complete.size() < keys) {
            Thread.sleep(5);
        }
        say("cold", (System.nanoTime() - started) / 1e9);
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    static <T> KTable<String, T> table(StreamsBuilder builder, String topic, String store, Class<T> type) {
        Serializer<T> write = (name, row) -> {
            try {
                return row == null ? null : JSON.writeValueAsBytes(row);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        };
        Deserializer<T> read = (name, bytes) -> {
            try {
                return bytes == null ? null : JSON.readValue(bytes, type);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        };
        Serde<T> serde = Serdes.serdeFrom(write, read);
        return builder.table(
                topic,
                Consumed.with(Serdes.String(), serde),
                Materialized.<String, T>as(Stores.inMemoryKeyValueStore(store)).withKeySerde(Serdes.String()).withValueSerde(serde));
    }

    static void say(String event, double seconds) {
        System.out.println("{\"event\":\"" + event + "\",\"seconds\":" + seconds + "}");
        System.out.flush();
    }
}
