"""A plain PySpark job with Spark's state: the union of both topics, `max_by` for each key, in update mode.

It runs in a separate process and prints one JSON object per line. Its state has one row for each key.
"""

import argparse
import json
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

USERS = "userId string, name string, email string, age long"
ACCOUNTS = "userId string, accountType string, balance double"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--users", required=True)
    parser.add_argument("--accounts", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--last-name", required=True, help="the suffix of the name in each key's newest user record")
    parser.add_argument("--newest", required=True)
    parser.add_argument("--jars", required=True)
    options = parser.parse_args()
    started = time.monotonic()
    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", options.jars)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")  # one for each core; the default, 200, is several times slower
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    say(event="started", seconds=time.monotonic() - started)
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.monotonic()
        query = joined(session, options).writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        done: list[float] = []

        def take(frame: DataFrame, batch_id: int) -> None:
            complete = f"accountType = '{options.newest}' and name like '%{options.last_name}'"
            if frame.where(complete).toArrow().num_rows == options.keys:
                done.append(time.monotonic() - started)

        running = query.foreachBatch(take).start()
        while not done:
            time.sleep(0.01)
            if not running.isActive:
                raise SystemExit("the query ended before it was complete")
        say(event="cold", seconds=done[0])
        sys.stdin.readline()
        running.stop()
    session.stop()


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def joined(session: SparkSession, options: argparse.Namespace) -> DataFrame:
    users, accounts = (
        records(session, options, options.users, USERS),
        records(session, options, options.accounts, ACCOUNTS),
    )
    user = F.struct("name", "email", "age")
    account = F.struct("accountType", "balance")
    both = users.select("userId", "at", user.alias("user"), F.lit(None).cast("struct<a:string,b:double>").alias("acc"))
    both = both.union(accounts.select("userId", "at", F.lit(None).cast(both.schema["user"].dataType), account))
    newest = both.groupBy("userId").agg(
        F.max_by("user", F.when(F.col("user").isNotNull(), F.col("at"))).alias("user"),
        F.max_by("acc", F.when(F.col("acc").isNotNull(), F.col("at"))).alias("acc"),
    )
    return newest.where("user is not null").select(
        "userId", "user.*", F.col("acc.a").alias("accountType"), F.col("acc.b").alias("balance")
    )


def records(session: SparkSession, options: argparse.Namespace, topic: str, schema: str) -> DataFrame:
    stream = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), schema).alias("value")
    return stream.select(value, F.struct("timestamp", "partition", "offset").alias("at")).select("value.*", "at")


if __name__ == "__main__":
    main()
