#!/usr/bin/env python3
"""Python's ways to make steps cheap under ddprun's hook on optimizers: torch.compile, CUDA graphs, activations computed twice."""

import shutil
import unittest

from gpu_bed import BACKEND, DEVICE, ON_GPU, PATIENCE, PYTHON, GpuCase, figure
from bed import WHOLE, free_port

STEPS = 8  # of programs/compiled.py
WORLDS = (1, 2) if ON_GPU else (2,)
COMPILED = ("compile:aot_eager", "compile:cudagraphs") if ON_GPU else ("compile:aot_eager",)
WAYS = ("eager", "skip", "checkpoint", "graph", "graphed", "whole_graph")
COMPILER = shutil.which("gcc") or shutil.which("cc")
# How far losses after a few correct steps that round differently may be apart, relative to the loss: 2^-24 for each term of the
# longest sum, 64 x 128. Leaving out one step of the optimizer moves the loss by 1e-2.
ROUNDING = 5e-4
COUNTED = 7  # the phase on the page, where ddprun counts steps itself


def apart(one, other):
    return max(abs(a - b) / abs(a) for a, b in zip(one, other))


class Compile(GpuCase):
    def setUp(self):
        super().setUp()
        self.bed.environment["OMP_NUM_THREADS"] = "1"  # sums in the same order

    def lines(self, ranks, where):
        """By way, rank 0's, once all ranks have written theirs."""
        self.bed.follower.refresh()
        lines = self.bed.journal.find("trained", world=ranks)
        mine = [line for line in lines if (line["after"] is None) == (where == "plain")]
        return {line["way"]: line for line in mine if line["rank"] == 0}, mine

    def under_ddprun(self, ranks, ways):
        agent = self.launch(ranks, (), "compiled.py", DEVICE, BACKEND, self.bed.journal.path, *ways, name=f"job{ranks}")
        self.finish_job(agent)
        return self.lines(ranks, "ddprun")

    def plain(self, ranks, ways):
        """The same processes, started as nobody's job."""
        port = free_port()
        processes = []
        for rank in range(ranks):
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks,
                      "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            name = f"plain{ranks}.{rank}"
            processes.append(self.bed.start_process(
                name, [PYTHON, self.program("compiled.py"), DEVICE, BACKEND, self.bed.journal.path, *ways],
                output=self.bed.path(f"{name}.out"), env={**self.bed.environment, **{k: str(v) for k, v in places.items()}}))
        for process in processes:
            self.assertEqual(0, process.wait(PATIENCE), process.text()[-3000:])
        return self.lines(ranks, "plain")

    def assert_counted(self, line):
        """Each step, but perhaps the first: a step ends when its optimizer steps again (docs/PROGRESS.md)."""
        steps = line["after"][1] - line["before"][1]
        self.assertEqual(COUNTED, line["after"][0], line["way"])
        left_out = 1 if line["way"] == "skip" else 0
        if line["way"] == "whole_graph" and ON_GPU:
            # The host makes the state, warms up and captures; what is replayed it doesn't see.
            if line["rank"] == 0:
                figure(f"whole_graph_{line['world']}_ranks_steps_counted", steps, "")
        else:
            more = 1 if line["way"] == "whole_graph" else 0  # which makes the state
            self.assertIn(steps - more + left_out, (STEPS - 1, STEPS), line["way"])

    def check(self, ranks, ways, plain_ways):
        ours, all_lines = self.under_ddprun(ranks, ways)
        plain, _ = self.plain(ranks, plain_ways)
        self.assertEqual((list(ways), list(plain_ways)), (list(ours), list(plain)))
        self.assertEqual(ranks * len(ways), len(all_lines))
        for line in all_lines:
            self.assertEqual(STEPS, len(line["losses"]))
            self.assert_counted(line)
        eager = ours["eager"]["losses"]
        for way, line in ours.items():
            name = way.replace(":", "_")
            with self.subTest(ranks=ranks, way=way):
                same = plain.get(way, plain["eager"])["losses"]
                figure(f"{name}_{ranks}_ranks_apart_from_plain", apart(same, line["losses"]) * 1e6, "e-6")
                self.assertLessEqual(apart(same, line["losses"]), ROUNDING if ON_GPU or way not in plain else 0)
                if way == "skip":
                    self.assertGreater(apart(eager, line["losses"]), 5 * ROUNDING)
                elif way != "whole_graph" or ranks == 1:  # where each rank learns by itself
                    self.assertLessEqual(apart(eager, line["losses"]), ROUNDING)
                figure(f"{name}_{ranks}_ranks", line["seconds"], "s")

    def test_each_way(self):
        """Can fail: a step that is left out is seen, in the losses and in the count."""
        for ranks in WORLDS:
            # Compiling takes seconds: its losses are compared with those that nobody compiled.
            self.check(ranks, (*WAYS, *COMPILED), WAYS)

    @unittest.skipUnless(COMPILER and (ON_GPU or WHOLE), "no C compiler is here, or no GPU: torch.compile's default needs both")
    def test_inductor(self):
        self.check(1, ("eager", "compile:inductor"), ("eager",))


if __name__ == "__main__":
    unittest.main(verbosity=2)
