#!/usr/bin/env python3
"""ElasticSampler in jobs that lose workers and nodes in the middle of an epoch and go on at another size (docs/DATA.md)."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, TORCH_PYTHON, BedTestCase, free_port, torch_ahead, torch_is_there  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "counting_worker.py")
# Each start imports torch, on a machine that has other work too.
START = 60 * SLOW


@unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
class Data(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment.update(PYTHON_EXEC=TORCH_PYTHON, PYTHONPATH=os.path.join(ROOT, "python"), OMP_NUM_THREADS="1")
        self.port = free_port()
        self.generation = 0

    def node(self, name, workers, kind):
        options = ["--nnodes", "1:2", "--nproc_per_node", workers, "--rdzv_endpoint", f"127.0.0.1:{self.port}",
                   "--rdzv_id", "data", "--rdzv_conf", f"is_host={int(name == 'first')}", "--max_restarts", 9,
                   *torch_ahead("torch.nn.parallel", "torch.utils.data", "torch._dynamo"), "--event_log", self.bed.events.path]
        return self.bed.run(name, [*options, WORKER, self.bed.journal.path, self.bed.folder, kind])

    def training(self, world, alive):
        """The starts of the next generation of that many ranks."""
        lines = self.bed.next_workers(self.generation, world, world, START, alive)
        self.generation = lines[0]["generation"]
        return lines

    def strike(self, rank, what=0):
        """In the middle of an epoch the rank kills a process, 0: itself."""
        self.bed.write("strike.new", f"{rank} {what}")
        os.rename(self.bed.path("strike.new"), self.bed.path("strike"))

    def grow(self, first, kind):
        """A node joins a job of one rank in the middle of an epoch."""
        self.strike(0, "hold")
        self.bed.wait(lambda: self.bed.journal.find("held", world=1), "a rank that waits", START, [first])
        third = self.node("third", 1, kind)
        return third, self.training(2, (first, third))

    def finish(self, *agents):
        self.bed.write("finish", "")
        for agent in agents:
            self.assert_status(0, agent, START)
        self.bed.follower.refresh()
        done = self.bed.journal.find("done")
        self.assertEqual(1, len({str(line["epochs"]) for line in done}), "the ranks have other models")
        return done[0]["epochs"]

    def test_each_sample_once_an_epoch_whoever_is_killed(self):
        first = self.node("first", 1, "elastic")
        second = self.node("second", 2, "elastic")
        self.training(3, (first, second))
        resumed = []
        for rank in (2, 0):  # a worker, then the one that saves
            self.strike(rank)
            resumed += self.training(3, (first, second))
        self.strike(0, second.pid)
        resumed += self.training(1, (first,))
        third, lines = self.grow(first, "elastic")
        resumed += lines
        self.strike(1)
        resumed += self.training(2, (first, third))
        # Each was in the middle of an epoch, and nobody began one anew.
        self.assertEqual(3 + 3 + 1 + 2 + 2, sum(line["state"]["consumed"] > 0 for line in resumed))
        epochs = self.finish(first, third)
        self.assertGreaterEqual(len(epochs), 1)
        self.assertEqual([{"repeated": 0, "lost": 0}] * len(epochs), epochs)

    def test_twin_distributed_sampler_repeats_or_loses(self):
        """Which of the two depends on where in the epochs the world changed; once is enough for it."""
        first = self.node("first", 1, "distributed")
        self.training(1, (first,))
        third, _ = self.grow(first, "distributed")
        epochs = self.finish(first, third)
        self.assertGreater(sum(epoch["repeated"] + epoch["lost"] for epoch in epochs), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
