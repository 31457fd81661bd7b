"""The errors of Turnout's commands and starts, beside those that clients get too (`turnout_client.errors`)."""

from collections.abc import Iterable, Mapping
from itertools import islice

from turnout_client.errors import ERRORS, TurnoutError, first_line, needs_extra

__all__ = ["ERRORS", "MOST_FAULTS", "PROGRAM_ERRORS", "ConfigError", "TurnoutError", "first_line", "needs_extra"]

PROGRAM_ERRORS: Mapping[str, tuple[str, str]] = {
    "bad_message": ("a message on the live connection is wrong", "docs/reference/live.md has the messages"),
    "too_many_subscriptions": (
        "a live connection has 32 subscriptions, or its client `server.max_subscriptions_per_client`",
        "unsubscribe from some",
    ),
    "table_gone": ("a followed table is gone: an applied configuration removed it", "follow another"),
    "server_unreachable": ("no server answers at the address", "start one, or give another `--url`"),
    "bad_answer": ("what answers is not a Turnout of this version", "check the address; it has no path"),
    "bad_url": ("the server's address cannot be used", "write it as `http://127.0.0.1:10000`"),
    "bad_token": ("the token has characters that a header cannot carry", "check `TURNOUT_TOKEN`"),
    "outcome_pending": ("a request was accepted, and has no outcome yet", "look at `turnout history`"),
    "missing_package": (
        "an optional Python package is not installed",
        "install the extra that the hint names",
    ),
    "client_failed": ("an unexpected error of the Python client", "report it"),
    "error": ("a server refused and did not say why", "look at its log"),
    "sink_refused": ("Kafka refuses what a sink writes", "do what its error says: a right, a topic, a limit"),
    "sink_topic_replaced": (
        "the topic of a sink was deleted and created again",
        "nothing: the whole table is written to it",
    ),
    "sink_fenced": ("another process writes the topic of a sink", "stop it, or give one of them another topic"),
    "sink_failed": ("an unexpected error of a sink", "report it; the log of the process has the details"),
    "address_unavailable": ("the server cannot listen there", "give another `server.port` or `server.host`"),
    "insecure_address": ("others could reach the server, and nothing protects it", "describe tokens at `access:`"),
    "topic_exists": ("a topic already exists", "give another name, or use the topic as it is"),
    "topic_refused": ("Kafka does not create a topic", "do what the message says: a right, a name, a limit"),
    "file_exists": ("a file already exists", "give another path, or `--force`"),
    "file_unwritable": ("a file cannot be written", "give another path"),
    "java_missing": ("there is no Java", "install a JRE of 17 or newer, or set `JAVA_HOME`"),
    "java_too_old": ("Java is older than 17", "install a newer one, or set `JAVA_HOME`"),
    "java_broken": ("Java does not run", "check `JAVA_HOME`"),
    "jars_unreachable": (
        "Spark's jars cannot be fetched",
        "set `TURNOUT_MAVEN_MIRROR` to a mirror that can be reached",
    ),
    "jar_refused": ("a mirror does not give a jar", "set `TURNOUT_MAVEN_MIRROR` to another"),
    "jar_mismatch": ("a jar is not the one that the lock names", "set `TURNOUT_MAVEN_MIRROR` to another"),
    "jar_cache": ("the cache of jars cannot be written", "set `TURNOUT_CACHE` to another folder"),
    "no_class_archive": ("an archive of classes was not made", "Turnout runs without it, but starts more slowly"),
    "no_package_archive": ("the packages for Spark's workers were not written", "free 80 MB, or set `TURNOUT_CACHE`"),
    "spark_not_started": (
        "Spark did not start",
        "check `spark.master`, `spark.conf`, the memory that is free and the room on the disk",
    ),
    "kafka_unreadable": ("a range of a topic cannot be read", "the message has Kafka's reason; it is tried again"),
    "openssl_missing": ("the command `openssl` is not installed", "install it"),
    "openssl_failed": ("`openssl` cannot read a file", "check the files of `kafka.auth` and their passwords"),
    "broker_port_busy": ("the port of the embedded broker is in use", "choose another; 0 takes a free one"),
    "broker_folder_busy": ("another broker runs on the folder", "stop that one, or choose another folder"),
    "broker_failed": ("the embedded broker did not start", "the message has the end of its log"),
}
"""The other errors, of commands, clients and starts: when, and what to do."""


MOST_FAULTS = 100
"""Faults of one configuration that are told: each costs time and room, and a text can have thousands."""


class ConfigError(TurnoutError):
    """Every fault of one configuration, each as `place: what is wrong; what to do`."""

    def __init__(self, faults: Iterable[str]) -> None:
        found = tuple(islice(faults, MOST_FAULTS + 1))
        more = ("there are more faults; correct these first",) if len(found) > MOST_FAULTS else ()
        self.faults = found[:MOST_FAULTS] + more
        super().__init__("bad_config", "\n".join(self.faults), status=400)
