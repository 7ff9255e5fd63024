"""Trainings of Sessions that are disturbed, beside one that isn't: their last checkpoints must have the same bits.

Workers are killed while others live on, or while all are started anew; or a job ends and is started again. Used by a test, and
with DDPRUN_TEST_WHOLE=1 by a campaign.
"""

import json
import os
import signal
import threading
import time
import zlib

from bed import free_port
from saving_survivors import NAME
from survivors import PATIENCE, PROBE, LiveTraining, require
from timeline import wait_readable

WORLD = 3  # with two, a sum has one order, and a half is exact
PREFIX = "extra.buckets."


def read_checkpoint(path):
    """Metadata and tensors by name, as (type, shape, bytes)."""
    with open(path, "rb") as source:
        data = source.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin + first:begin + end])
    return metadata, tensors


def newest(folder):
    """The newest checkpoint's files by rank, "" for the one that lists the shards. Requires: there is one, and nobody writes."""
    found = {}
    for name in os.listdir(folder):
        match = NAME.fullmatch(name)
        if match:
            found.setdefault(match[1], {})[match[3] or ""] = os.path.join(folder, name)
    return found[max(found, key=lambda one: (int(one.rpartition("-s")[2]), one))]


def last_bits(folder):
    """All of the newest checkpoint, by (rank, name): tensors, and the figure that it was kept for."""
    bits = {}
    for rank, path in newest(folder).items():
        metadata, tensors = read_checkpoint(path)
        bits[rank, "score"] = metadata.get("score")
        bits.update({(rank, name): tensor for name, tensor in tensors.items()})
    return bits


def drop_buckets(training):
    """Takes the buckets' order out of the newest checkpoint, as if it weren't a part of the state. Requires: no shards."""
    files = newest(training.checkpoints)
    require(list(files) == [""], "it has shards, and lists their checksums")
    metadata, tensors = read_checkpoint(files[""])
    require(any(name.startswith(PREFIX) for name in tensors), f"{files['']} has no order of buckets")
    header, data = {"__metadata__": metadata}, b""
    del metadata["crc32"]
    for name, (kind, shape, value) in tensors.items():
        if not name.startswith(PREFIX):
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(value)]}
            data += value
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    metadata["crc32"] = str(zlib.crc32(data, zlib.crc32(text)))
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(files[""], "wb") as sink:
        sink.write(len(text).to_bytes(8, "little") + text + data)


class BitsTraining(LiveTraining):
    """One job to its end: of three workers on one node, or of two on each of several nodes, with hierarchical collectives."""

    since = 0.0  # when the newest job was started

    def __init__(self, rng, options, epochs=6, nodes=1):
        super().__init__(nodes, WORLD if nodes == 1 else 2, rng, options=options)
        self.epochs = epochs
        self.checkpoints = self.bed.path("checkpoints")
        self.jobs = 0

    def start(self):
        self.jobs += 1
        job = ["--no_python", "--nnodes", self.nodes, "--nproc_per_node", self.per_node, *self.restarts,
               "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--local_addr", "127.0.0.1",
               "--event_log", self.bed.events.path]
        training = [PROBE, "bits", self.bed.journal.path, "--epochs", self.epochs, "--checkpoint_dir", self.checkpoints,
                    "--step_delay_ms", 5, "--learning_rate", 0.01, "--checkpoint_every", 5, *self.options]
        self.agents = [self.bed.run(f"job{self.jobs}.{node}", [*job, "--rdzv_conf", f"is_host={int(node == 0)}", *training])
                       for node in range(self.nodes)]

    def alive(self):
        """Workers of this job, as far as its agent has written."""
        self.bed.follower.refresh()
        gone = {line["worker_pid"] for line in self.bed.events.find("worker_exit")} | {pid for pid, _ in self.victims}
        return [int(line["worker_pid"]) for line in self.bed.events.find("worker_started", self.since)
                if line["worker_pid"] not in gone]

    def kill(self):
        """A worker, at a random moment: of a step, a save or an evaluation, or while others still recover from the last kill."""
        last = self.victims[-1][1] if self.victims else 0.0
        if self.victims and self.rng.randrange(5) == 0:
            threading.Event().wait(self.rng.uniform(0, 0.4))  # the kernel's timer decides, not the job's progress
        else:
            self.wait_for_steps(self.rng.randrange(1, 6), last)
            threading.Event().wait(self.rng.uniform(0, 0.01))
        candidates = self.alive()
        if not candidates:
            return
        pid, moment = self.rng.choice(candidates), time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.victims.append((pid, moment))

    def begin_again(self, number, change=None):
        """The whole job ends by that signal, and is started again. change: what befalls it meanwhile."""
        self.wait_for_steps(self.rng.randrange(6, 10), self.since)
        workers = [os.pidfd_open(pid) for pid in self.alive()]
        for agent in self.agents:
            agent.signal(number)
        for agent in self.agents:
            agent.wait(PATIENCE)
        for worker in workers:
            require(wait_readable(worker, PATIENCE), "a worker outlived its agent")
            os.close(worker)
        if change is not None:
            change(self)
        self.since = time.monotonic()
        self.start()

    def finish(self):
        """To its end, and what it came to."""
        statuses = [agent.wait(PATIENCE) for agent in self.agents]
        require(not any(statuses), f"the job ended with {statuses}")
        return last_bits(self.checkpoints)


def bits_of(training, disturb):
    """The result of a training that `disturb` has disturbed. Errors: Wrong, TimelineError, with the story printed."""
    try:
        training.start()
        disturb(training)
        return training.finish()
    except Exception:
        print(training.story(), flush=True)
        raise
    finally:
        training.close()


def differing(one, other):
    """The names under which two of last_bits differ."""
    return sorted({f"{rank}/{name}" for rank, name in {*one, *other} if one.get((rank, name)) != other.get((rank, name))})
