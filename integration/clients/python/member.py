"""One member of a consumer group by librdkafka; see ../groups_member.go for what it is told and prints."""

import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site"))

from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: E402

TOPIC = os.environ["MEMBER_TOPIC"]
BATCH = 200
stop = threading.Event()


def emit(what, **more):
    line = json.dumps({"e": what, "t": time.time_ns() // 1000, **more}) + "\n"
    os.write(1, line.encode())


def settings():
    consumer = os.environ["MEMBER_PROTOCOL"] == "consumer"
    s = {
        "bootstrap.servers": os.environ["TIERBROKER_BOOTSTRAP"],
        "client.id": os.environ["MEMBER_ID"],
        "group.id": os.environ["MEMBER_GROUP"],
        "group.protocol": os.environ["MEMBER_PROTOCOL"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 300,
        "max.poll.interval.ms": 30000,
    }
    if not consumer:
        strategies = {"cooperative": "cooperative-sticky"}
        strategy = os.environ["MEMBER_STRATEGY"]
        s["partition.assignment.strategy"] = strategies.get(strategy, strategy)
        s["session.timeout.ms"] = int(os.environ["MEMBER_SESSION_MS"])
        s["heartbeat.interval.ms"] = 300
    if os.environ.get("MEMBER_INSTANCE"):
        s["group.instance.id"] = os.environ["MEMBER_INSTANCE"]
    return s


class Member:
    def __init__(self):
        self.consumer = Consumer(settings())
        self.batch = {}  # partition -> [first, last, number]
        self.uncommitted = {}  # partition -> next offset; what a rebalance refused is committed later

    def run(self):
        self.consumer.subscribe([TOPIC], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
        while not stop.is_set():
            message, n = self.consumer.poll(0.2), 0
            while message is not None:
                self.take(message)
                n += 1
                message = self.consumer.poll(0) if n < BATCH else None
            self.flush()
        self.consumer.close()

    def take(self, message):
        if message.error():
            emit("note", m="fetch: " + str(message.error()))
            return
        at = message.offset()
        r = self.batch.setdefault(message.partition(), [at, at, 0])
        r[1], r[2] = at, r[2] + 1

    def flush(self):
        if self.batch:
            done, self.batch = self.batch, {}
            emit("records", r=done)
            self.uncommitted.update({p: r[1] + 1 for p, r in done.items()})
        if not self.uncommitted:
            return
        try:
            self.consumer.commit(offsets=[TopicPartition(TOPIC, p, o) for p, o in self.uncommitted.items()], asynchronous=False)
            self.uncommitted = {}
        except KafkaException as e:
            emit("note", m="commit: " + str(e))

    def assigned(self, _, partitions):
        emit("assigned", p=[p.partition for p in partitions])

    def revoked(self, _, partitions):
        self.flush()
        self.forget(partitions)
        emit("revoked", p=[p.partition for p in partitions])

    def lost(self, _, partitions):
        self.batch = {}
        self.forget(partitions)
        emit("lost", p=[p.partition for p in partitions])

    def forget(self, partitions):
        for p in partitions:
            self.uncommitted.pop(p.partition, None)


def listen():
    while sys.stdin.buffer.read(1024):
        pass
    stop.set()


threading.Thread(target=listen, daemon=True).start()
Member().run()
