#!/usr/bin/env python3
"""Workers are killed in the middle of saving their shards: the others keep their processes, and what can be loaded is whole."""

import contextlib
import json
import os
import random
import sys
import tempfile
import unittest
import zlib

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import saving_survivors  # noqa: E402
import survivors  # noqa: E402
from bed import WHOLE, TimelineError  # noqa: E402
from saving_survivors import OF_A_SHARD, OF_THE_WHOLE, SavingTraining  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
# Nodes, workers of each, backend, stage.
SHAPES = [(1, 3, "auto", "2")]
if WHOLE:
    SHAPES += [(1, 3, "auto", "1"), (1, 3, "auto", "3"), (2, 2, "auto", "1"), (2, 2, "auto", "3"), (3, 1, "gloo", "1"),
               (3, 1, "gloo", "2")]
# The file's owner, the call, and the fault: those of an ordinary run.
FEW = [("1", "create", "kill"), ("0", "rename", "kill"), ("1", "named", "kill_after"), ("whole", "write", "kill"),
       ("whole", "named", "kill_after"), ("whole", "remove", "kill")]


def instants(world):
    if not WHOLE:
        return FEW
    return [*((str(rank), *instant) for rank in range(world) for instant in OF_A_SHARD),
            *(("whole", *instant) for instant in OF_THE_WHOLE)]


@contextlib.contextmanager
def running(training):
    """Shows the story of one that fails; nothing is left of it."""
    try:
        training.start()
        training.wait_for_steps(5)
        yield training
    except (survivors.Wrong, TimelineError, AssertionError):
        print(training.story(), flush=True)
        raise
    finally:
        training.close()


class Survivors(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}", flush=True)

    def test_killed_in_a_save(self):
        for nodes, per_node, backend, stage in SHAPES:
            with self.subTest(nodes=nodes, stage=stage):
                with running(SavingTraining(nodes, per_node, random.Random(SEED), stage, backend=backend)) as training:
                    for whose, call, what in instants(training.world):
                        moment = training.kill_at(call, whose, what)
                        training.wait_for_steps(2, moment)
                        training.check_saves()
                    # All workers are killed, rank 0 when it was about to finish a checkpoint.
                    training.check()
                    training.arm("rename", "whole", "hold")
                    moment, step = training.start_again()
                    training.wait_for_steps(2, moment)
                    training.check_resumed(moment, step)
                    training.end()

    def test_whoever_waits_for_a_disk_lets_go(self):
        """A write takes longer than a worker has to let go of its generation; its own Save() waits for it."""
        with running(SavingTraining(1, 3, random.Random(SEED), "2", every=0)) as training:
            for whose in ("0", "1"):
                held = training.arm("sync", whose, "hold")
                moment = training.kill_beside(held)
                training.wait_for_steps(1, moment)  # while the disk hangs
                training.open_gate()
                training.wait_for_steps(3, moment)
                training.close_gate()
            training.check()
            training.end()

    def test_whoever_agrees_with_a_killed_one_goes_on(self):
        """Rank 0 has not given the checkpoint its file, which the others wait for; it still does, as all shards are there."""
        with running(SavingTraining(1, 3, random.Random(SEED), "2", every=0)) as training:
            held = training.arm("create", "whole", "hold")
            moment = training.kill_beside(held)
            training.wait_for_steps(1, moment)
            training.open_gate()
            name = held["name"].partition(".safetensors")[0] + ".safetensors"
            training.bed.wait(lambda: training.bed.journal.find("renamed", name=name), name, survivors.PATIENCE)
            training.wait_for_steps(3, moment)
            training.check()
            training.end()

    def test_whoever_removes_old_ones_lets_go(self):
        """To remove a large file takes a file system its time, which nobody who trains waits for."""
        # The next save waits for the one before: the kill comes, and a step is done after it, long before that.
        with running(SavingTraining(1, 3, random.Random(SEED), "2", every=20)) as training:
            moment = training.kill_beside(training.arm("remove", "whole", "hold"))
            training.wait_for_steps(1, moment)  # with the old ones as they are
            training.open_gate()
            training.wait_for_steps(3, moment)
            training.check()
            training.end()

    def test_twin_that_does_not_let_go_in_time(self):
        """What the training's own thread does, nobody else can wait for."""
        with self.assertRaisesRegex(survivors.Wrong, "1 workers were started anew that nobody had killed"):
            with running(SavingTraining(1, 3, random.Random(SEED), "2")) as training:
                moment = training.kill_beside(training.arm("forward", "1", "hold"))
                training.bed.event("let_go_late", moment, timeout=survivors.PATIENCE)
                training.wait_for_steps(1, moment)
                training.check()


class WhatIsWhole(unittest.TestCase):
    """What whole_checkpoints says of a directory with one checkpoint of two shards."""

    NAME = "checkpoint-f000001-g000001-s0000000003"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        sums = [self.write(f"shard {rank}", {}, f"-r{rank:05d}-of-00002-{{:08x}}") for rank in range(2)]
        self.write("all", {"shard_crc32": " ".join(f"{one:08x}" for one in sums), "world_size": "2"}, "")
        self.shards = [f"{self.NAME}-r{rank:05d}-of-00002-{sums[rank]:08x}.safetensors" for rank in range(2)]

    def write(self, text, metadata, suffix):
        header = json.dumps({"__metadata__": metadata}, sort_keys=True, separators=(",", ":")).encode()
        checksum = zlib.crc32(text.encode(), zlib.crc32(header))
        whole = json.dumps({"__metadata__": {**metadata, "crc32": str(checksum)}}).encode()
        with open(os.path.join(self.folder, f"{self.NAME}{suffix.format(checksum)}.safetensors"), "wb") as sink:
            sink.write(len(whole).to_bytes(8, "little") + whole + text.encode())
        return checksum

    def whole(self):
        return saving_survivors.whole_checkpoints([self.folder])

    def test_all_is_there(self):
        self.assertEqual(["f000001-g000001-s0000000003"], self.whole())

    def test_a_shard_is_missing(self):
        os.remove(os.path.join(self.folder, self.shards[1]))
        self.assertEqual([], self.whole())

    def test_a_shard_is_another_saves(self):
        os.rename(os.path.join(self.folder, self.shards[1]), os.path.join(self.folder, self.shards[0]))
        with self.assertRaisesRegex(survivors.Wrong, "has the checksum"):
            os.symlink(self.shards[0], os.path.join(self.folder, self.shards[1]))
            self.whole()

    def test_a_file_is_torn(self):
        with open(os.path.join(self.folder, self.shards[0]), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"?")
        with self.assertRaisesRegex(survivors.Wrong, "is torn"):
            self.whole()


if __name__ == "__main__":
    unittest.main(verbosity=2)
