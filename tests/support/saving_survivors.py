"""A training of Sessions that save shards side by side; their workers are killed in the middle of that, at known instants.

The faults are those of tests/worker/faults.h. Used by a test and, with many kills, by a benchmark.
"""

import fcntl
import json
import os
import re
import signal
import time
import zlib

import survivors
from bed import leftovers
from survivors import PATIENCE, require

NAME = re.compile(r"checkpoint-(f\d+-g\d+-s(\d+))(?:-r(\d+)-of-\d+-([0-9a-f]{8}))?\.safetensors")
# What a worker does with a file, in this order, and what befalls it there.
OF_A_SHARD = [("create", "kill"), ("write", "kill"), ("sync", "kill"), ("rename", "kill"), ("named", "kill_after")]
# Rank 0 does the same with the file that lists the shards, and removes old files while the others wait.
OF_THE_WHOLE = [*OF_A_SHARD, ("remove", "kill"), ("remove", "kill_after")]
OF_A_STEP = ["forward", "reduce", "commit", "done"]


def read_file(path):
    """Metadata and checksum of a checkpoint's file. Errors: Wrong — it is torn."""
    with open(path, "rb") as source:
        data = source.read()
    size = int.from_bytes(data[:8], "little")
    require(len(data) >= 8 + size, f"{path} is cut short")
    header = json.loads(data[8:8 + size])
    stored = int(header["__metadata__"].pop("crc32"))
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    require(zlib.crc32(data[8 + size:], zlib.crc32(text)) == stored, f"{path} is torn")
    return header["__metadata__"], stored


def whole_checkpoints(directories):
    """The ids of the checkpoints with all of their files, the newest first. Errors: Wrong — a file is torn, or its list
    is of another number of shards."""
    files = {}
    for directory in directories:
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            files.setdefault(name, os.path.join(directory, name))
    shards, whole = {}, []
    for name in files:
        match = NAME.fullmatch(name)
        if match and match[3]:
            shards.setdefault(match[1], {})[int(match[3]), match[4]] = name
    for name in sorted(files, reverse=True):
        match = NAME.fullmatch(name)
        if not match or match[3]:
            continue
        metadata, _ = read_file(files[name])
        listed = [(rank, checksum) for rank, checksum in enumerate(metadata["shard_crc32"].split())]
        require(len(listed) == int(metadata["world_size"]), f"{name} lists {len(listed)} shards of {metadata['world_size']}")
        own = shards.get(match[1], {})
        if not all(shard in own for shard in listed):
            continue
        for rank, checksum in listed:
            _, stored = read_file(files[own[rank, checksum]])
            require(f"{stored:08x}" == checksum, f"{own[rank, checksum]} has the checksum {stored:08x}")
        whole.append(match[1])
    return whole


class SavingTraining(survivors.LiveTraining):
    """A LiveTraining with a zero_stage, and a checkpoint beside training after every so many steps; 0: the program's own Save()
    waits for one after each step."""

    def __init__(self, nodes, per_node, rng, stage, hosts=None, backend="auto", every=2, launch=()):
        super().__init__(nodes, per_node, rng, hosts, backend, launch=launch)
        self.sharded = True
        self.directory = self.bed.path("checkpoints")
        self.options = ["--in_process_restart", "--zero_stage", stage, "--replicas", "2",
                        "--checkpoint_dir", self.directory, "--checkpoint_every", every, "--keep_checkpoints", "2"]
        self.fault = self.bed.journal.path + ".fault"
        # Taken before anybody can come to it.
        self.gate = os.open(self.fault + ".gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.close_gate()

    def arm(self, call, whose, what):
        """Returns the journal's line of the worker that met the fault."""
        before = len(self.bed.journal.find("fault"))
        with open(self.fault + ".new", "w", encoding="utf-8") as sink:
            sink.write(f"{call} {whose} {what}\n")
        os.rename(self.fault + ".new", self.fault)
        lines = self.bed.wait(lambda: self.bed.journal.find("fault")[before:], f"{what} at {call} of {whose}", PATIENCE,
                              self.agents)
        return lines[0]

    def note_victim(self, pid, moment):
        self.victims.append((pid, moment))
        self.undisturbed.append(moment)
        return moment

    def kill_at(self, call, whose, what="kill"):
        """Returns the moment."""
        line = self.arm(call, whose, what)
        return self.note_victim(line["pid"], line["t"])

    def kill_somewhere(self):
        """In a step, a save or a recovery, as chance has it. Returns where; None: nobody could be killed."""
        where = self.rng.choice(["step", "save", "random"])
        if where == "random" or not self.victims:
            before = len(self.victims)
            super().kill()
            if len(self.victims) == before:
                return None
            return "random" if self.victims[-1][1] in self.undisturbed else "recovery"
        self.wait_for_steps(3, self.victims[-1][1])
        whose = str(self.rng.randrange(self.world))
        if where == "step":
            where = self.rng.choice(OF_A_STEP)
            self.kill_at(where, whose)
        elif self.rng.randrange(2) == 0:
            self.kill_at(self.rng.choice(OF_A_SHARD)[0], whose, self.rng.choice(["kill", "kill_after"]))
        else:
            self.kill_at(*self.rng.choice([(call, "whole", what) for call, what in OF_THE_WHOLE]))
        return where

    def kill_beside(self, held):
        """Kills another one of the newest generation, whatever it does. Returns the moment."""
        self.bed.follower.refresh()
        newest = max(line["generation"] for line in self.steps())
        others = {line["pid"] for line in self.steps() if line["generation"] == newest} - {held["pid"]}
        pid, moment = self.rng.choice(sorted(others)), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return self.note_victim(pid, moment)

    def open_gate(self):
        fcntl.flock(self.gate, fcntl.LOCK_UN)

    def close_gate(self):
        fcntl.flock(self.gate, fcntl.LOCK_EX)

    def whole(self):
        while True:
            try:
                return whole_checkpoints([self.directory])
            except FileNotFoundError:  # it has just been taken away, because there are newer ones
                continue

    def check_saves(self):
        """A rank's shard of a step is the same whenever it was saved: so its file is of that step and nothing else."""
        self.bed.follower.refresh()
        shards = {}
        for line in self.bed.journal.find("renamed"):
            match = NAME.fullmatch(line["name"])
            require(match, f"a file got the name {line['name']}")
            if not match[3]:
                continue
            first = shards.setdefault((match[2], match[3]), match[4])
            require(first == match[4], f"rank {match[3]} saved {match[4]} in step {match[2]}, and {first} before")
        require(self.whole(), "no checkpoint is whole")

    def check(self):
        super().check()
        self.check_saves()

    def start_again(self):
        """All are killed at once, and the job is started anew. Returns the moment, and the newest whole checkpoint's step."""
        for agent in self.agents:
            agent.signal(signal.SIGKILL)
            agent.wait(PATIENCE)
        left = leftovers(self.bed.tag, PATIENCE)
        require(not left, f"processes outlived their agents: {left}")
        newest, moment = self.whole()[0], time.monotonic()
        self.agents.clear()
        self.start()
        return moment, int(newest.rsplit("-s", 1)[1])

    def check_resumed(self, moment, step):
        """From there on they do what was done before."""
        lines = [line for line in self.steps() if line["t"] > moment]
        require(lines[0]["step"] == step + 1, f"went on with step {lines[0]['step']} after a checkpoint of step {step}")
        for done in {line["step"] for line in lines}:
            survivors.check_shares(done, [line for line in self.steps() if line["step"] == done])

    def close(self):
        os.close(self.gate)
        super().close()
