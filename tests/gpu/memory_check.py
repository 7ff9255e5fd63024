#!/usr/bin/env python3
"""Checkpoints of a GPU's state in the agent's memory (docs/ELASTIC.md, "Memory"): a worker that is killed goes on from the newest
one with its bits. How fast saves are beside the card's copy engine, and what training sees of them."""

import os
import signal
import statistics
import unittest

from gpu_bed import DEVICE, ON_GPU, GpuCase, figure

STEPS, KILLED_AFTER = 60, 32
SHAPE = (16, 2048) if ON_GPU else (2, 32)  # layers, width: 805 MB with AdamW's state


class Memory(GpuCase):
    def test_a_killed_worker_goes_on_from_it(self):
        agent = self.launch(1, ("--max_restarts", 1), "memory.py", DEVICE, self.bed.journal.path, STEPS, *SHAPE)
        victim, = self.wait_for_step(KILLED_AFTER, 1, [agent])
        os.kill(victim["pid"], signal.SIGKILL)
        self.finish_job(agent)
        self.bed.follower.refresh()
        before, after = self.bed.journal.find("restored")
        saves = {line["step"]: line for line in self.steps(pid=victim["pid"]) if line["digest"]}
        self.assertEqual(0, before["step"])
        self.assertIn(after["step"], (max(saves), max(saves) + 5), "the newest save, or one under way that has ended")
        if after["step"] in saves:
            self.assertEqual(saves[after["step"]]["digest"], after["digest"])
        steps = self.steps()
        lasting = sorted(line["beside"] for line in steps if line["beside"])[:-2]  # the first ones take the memory, too
        size, beside = after["bytes"], statistics.median(lasting)
        figure("state", size / 1e6, "MB")
        figure("save_beside_training", beside, "s")
        figure("save_rate", size / beside / 1e9, "GB/s")
        figure("save_seen_by_training", statistics.median(line["seen"] for line in steps if line["beside"]), "s")
        figure("restore", after["seconds"], "s")
        if ON_GPU:
            copied = self.bed.journal.find("copied")[-1]["rate"]
            figure("copy_engine_rate", copied / 1e9, "GB/s")
            figure("save_over_copy", size / beside / copied, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
