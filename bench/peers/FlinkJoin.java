import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Flink SQL: upsert tables of users and accounts by the message key, left-joined; state on the heap, as shipped.
 * Prints one JSON object per line.
 * Arguments: bootstrap, users topic, accounts topic, keys, newest account type, end of the newest name.
 */
public class FlinkJoin {
    static final Set<String> COMPLETE = ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) throws Exception {
        int keys = Integer.parseInt(arguments[3]);
        String newest = arguments[4], lastName = arguments[5];
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(2);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.executeSql(source("users", "name STRING, email STRING, age BIGINT", arguments[0], arguments[1]));
        tables.executeSql(source("accounts", "accountType STRING, balance DOUBLE", arguments[0], arguments[2]));
        Table joined = tables.sqlQuery(
                "SELECT u.userId, u.name, u.email, u.age, a.accountType, a.balance"
                        + " FROM users u LEFT JOIN accounts a ON u.userId = a.userId");
        tables.toChangelogStream(joined)
                .map(row -> {
                    seen(row, newest, lastName);
                    return 0;
                })
                .returns(Types.INT)
                .sinkTo(new DiscardingSink<>());
        say("started", 0);
        long started = System.nanoTime();
        JobClient job = environment.executeAsync();
        while (COMPLETE.size() < keys) {
            if (job.getJobStatus().get().isGloballyTerminalState()) {
                throw new IllegalStateException("the job ended before it was complete");
            }
            Thread.sleep(10);
        }
        say("cold", (System.nanoTime() - started) / 1e9);
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    static void seen(Row row, String newest, String lastName) {
        boolean shown = row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER;
        if (shown && newest.equals(row.getField(4)) && ((String) row.getField(1)).endsWith(lastName)) {
            COMPLETE.add((String) row.getField(0));
        }
    }

    static String source(String name, String columns, String bootstrap, String topic) {
        return "CREATE TABLE " + name + " (userId STRING, " + columns + ", PRIMARY KEY (userId) NOT ENFORCED) WITH ("
                + "'connector' = 'upsert-kafka', 'topic' = '" + topic + "', 'properties.bootstrap.servers' = '" + bootstrap
                + "', 'key.format' = 'raw', 'value.format' = 'json')";
    }

    static void say(String event, double seconds) {
        System.out.println("{\"event\":\"" + event + "\",\"seconds\":" + seconds + "}");
        System.out.flush();
    }
}
