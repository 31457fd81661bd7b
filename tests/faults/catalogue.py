"""All faults, in the order they are played: those that share a world first."""

from __future__ import annotations

from faults.scenarios import hostile, machine, network, processes, topics
from faults.stage import Fault

FAULTS = (
    Fault("broker-stopped", "the broker stopped, and started again", network.broker_stopped),
    Fault("broker-restarted", "the broker restarted", network.broker_restarted),
    Fault("broker-slow", "a slow broker: 200 ms more, 200 kB/s", network.broker_slow),
    Fault("network-cut", "the network cut, and healed", network.network_cut),
    Fault("black-hole", "a network that swallows everything, and healed", network.network_black_hole),
    Fault("topics-made-anew", "each topic deleted, and created again", topics.topics_made_anew),
    Fault("partitions-added", "partitions added while reading", topics.partitions_added),
    Fault("retention", "retention removed records before they were read", topics.retention),
    Fault("kill-turnout", "kill -9 of Turnout, and started again", processes.kill_turnout),
    Fault("kill-keeping", "kill -9 of Turnout at five moments of builds that keep rows", processes.kill_keeping),
    Fault("kill-candidate", "kill -9 of Turnout while candidates are made and ended", processes.kill_candidate),
    Fault("kill-spark", "kill -9 of Spark's JVM", processes.kill_spark),
    Fault("kill-worker", "kill -9 of Spark's Python workers in a catch-up", processes.kill_worker),
    Fault("terminate", "SIGTERM under load, and started again", processes.terminate),
    Fault("callback-port", "another user at the port of Spark's callbacks, under load", processes.callback_port),
    Fault("poisoned-batch", "hostile records, read live", hostile.poisoned_batch),
    Fault("poisoned-build", "hostile records, read by a build", hostile.poisoned_build),
    Fault("strange-times", "records of any time, dates of any year; restarted", hostile.strange_times),
    Fault("strange-control", "control messages of any time and any bytes; restarted", hostile.strange_control_times),
    Fault("hot-key", "10,000 records of one key on each side of an inner join; restarted", hostile.hot_key),
    Fault("one-sided-key", "a key with 100,000 rows on one side", hostile.one_sided_key),
    Fault("large-records", "records of 1 MB", hostile.large_records),
    Fault("decompression-bomb", "records that unpack to 300 MB, read live and by a build", hostile.decompression_bomb),
    Fault("control-bomb", "a control message that unpacks to 300 MB; restarted", hostile.control_bomb),
    Fault("many-bad-records", "a million distinct bad records", hostile.many_bad_records),
    Fault("wide-source", "a source of 1,000 columns", hostile.wide_source),
    Fault("clock-jumps", "the clock an hour ahead, an hour behind, right again; restarted", machine.clock_jumps),
    Fault("disk-full", "the disk full, then room again", machine.disk_full),
    Fault("leader-change", "kill -9 of a partition's leader, three nodes", topics.leader_change),
)
