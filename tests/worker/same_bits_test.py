#!/usr/bin/env python3
"""Trainings that workers' deaths or the job's end have disturbed end with the bits of an undisturbed one (docs/CPP.md).

DDPRUN_TEST_WHOLE=1: the campaign of 300 kills and 100 resumes, over stages 0 to 3, shared memory, Gloo and two nodes, with and
without average, fp16, clipping and accumulated batches.
"""

import os
import random
import signal
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import WHOLE  # noqa: E402
from same_bits import BitsTraining, bits_of, differing, drop_buckets  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
STAGES = ("0", "1", "2", "3")
ALL = ("--ema_decay", "0.9", "--mixed_precision", "fp16", "--max_grad_norm", "1")
ACCUMULATED = ("--gradient_accumulation_steps", "2", "--batch_size", "2", "--num_workers", "1")
SURVIVE = ("--in_process_restart",)
ANEW = ("--no_in_process_restart",)
# The program's options in each stage. ORDINARY: for an ordinary run, one set a stage.
ORDINARY = {"0": (*ALL, "--backend", "auto"), "1": (*ALL, "--backend", "gloo"), "2": (*ALL, "--backend", "gloo"),
            "3": (*ALL, *ACCUMULATED, "--backend", "auto")}
# (options, nodes). On two nodes: shared memory within a node, rings between them. There accumulated batches would leave a rank
# with one sample, which batch norm refuses.
SHAPES = [((*more, "--backend", backend), nodes) for backend, nodes in (("auto", 1), ("gloo", 1), ("auto", 2))
          for more in ((), ALL, (*ALL, *ACCUMULATED)) if nodes == 1 or more != (*ALL, *ACCUMULATED)]
KILLS, RESUMES = 3, 2  # of one training
ALL_KILLS, ALL_RESUMES = 300, 100


def kill(times):
    def disturb(training):
        for _ in range(times):
            training.kill()
    return disturb


def begin_again(times):
    def disturb(training):
        for number in range(times):
            training.begin_again((signal.SIGKILL, signal.SIGTERM)[number % 2])
    return disturb


class SameBits(unittest.TestCase):
    references = {}

    def setUp(self):
        print(f"seed {SEED}", flush=True)
        self.rng = random.Random(SEED)

    def reference(self, options, nodes):
        if (options, nodes) not in self.references:
            self.references[options, nodes] = bits_of(BitsTraining(self.rng, options, nodes=nodes), lambda training: None)
        return self.references[options, nodes]

    def difference(self, options, disturb, more=(), nodes=1):
        """What differs from the undisturbed training, and the disturbed one; `more`: options of the latter alone."""
        expected = self.reference(options, nodes)
        training = BitsTraining(self.rng, (*options, *more), nodes=nodes)
        return differing(expected, bits_of(training, disturb)), training

    def assert_same(self, options, disturb, nodes=1):
        differ, training = self.difference(options, disturb, nodes=nodes)
        self.assertEqual([], differ, f"{len(training.victims)} kills, {training.jobs} jobs of {options} on {nodes} nodes")

    def test_kills_and_resumes(self):
        for stage in STAGES:
            options = ("--zero_stage", stage, *ORDINARY[stage])
            with self.subTest(stage=stage):
                self.assert_same((*options, *SURVIVE), kill(KILLS))
                self.assert_same((*options, *ANEW), kill(1))
                self.assert_same((*options, *ANEW), begin_again(1))

    def test_kills_and_resumes_on_two_nodes(self):
        """Sums go through shared memory within a node, and between the nodes over rings."""
        for stage in ("0", "2"):
            options = ("--zero_stage", stage, *ALL, "--backend", "auto")
            with self.subTest(stage=stage):
                self.assert_same((*options, *SURVIVE), kill(KILLS), nodes=2)
                self.assert_same((*options, *ANEW), begin_again(1), nodes=2)

    @unittest.skipUnless(WHOLE, "DDPRUN_TEST_WHOLE=1: the campaign takes some twenty minutes")
    def test_campaign(self):
        kills, resumes, done, bad = 0, 0, {True: 0, False: 0}, []
        while kills < ALL_KILLS or resumes < ALL_RESUMES:
            survive = kills * ALL_RESUMES <= resumes * ALL_KILLS
            number = done[survive]
            done[survive] += 1
            row = number // len(STAGES)
            shape, nodes = SHAPES[row % len(SHAPES)]
            options = ("--zero_stage", STAGES[number % len(STAGES)], *shape, *(SURVIVE if survive else ANEW))
            differ, training = self.difference(options, kill(KILLS) if survive or (number + row) % 2 else begin_again(RESUMES),
                                               nodes=nodes)
            kills += len(training.victims) if survive else 0
            resumes += 0 if survive else len(training.victims) + training.jobs - 1
            if differ:
                bad.append((options, nodes, differ[:4]))
            print(f"training {sum(done.values())}: {' '.join(options)} on {nodes} nodes: "
                  f"{len(training.victims)} kills, {training.jobs} jobs: "
                  f"{len(differ)} tensors differ; {kills} kills beside survivors and {resumes} resumes so far", flush=True)
        self.assertEqual([], bad)

    def test_twin_without_the_order_of_buckets(self):
        """What a new reducer does in its first step is seen at the end: over rings, and with views in shared memory."""
        for options in (("--zero_stage", "0", "--backend", "gloo", "--no_gradient_as_bucket_view", *ANEW),
                        ("--zero_stage", "0", "--backend", "auto", *ANEW)):
            with self.subTest(options=options):
                differ, _ = self.difference(options, lambda training: training.begin_again(signal.SIGKILL, drop_buckets))
                self.assertIn("/model.0.weight", differ)

    def test_twin_with_numbers_of_its_own(self):
        """A new worker augments its samples with noise of its own."""
        options = ("--zero_stage", "0", "--backend", "auto", *SURVIVE)
        differ, _ = self.difference(options, kill(1), ("--data", "own"))
        self.assertIn("/model.0.weight", differ)

    def test_twin_that_is_healed_beside_a_step(self):
        """In that step others learn from the new one's samples, which are divided otherwise."""
        options = ("--zero_stage", "0", "--backend", "auto", *SURVIVE)
        differ, _ = self.difference(options, kill(1), ("--healing", "beside"))
        self.assertIn("/model.0.weight", differ)


if __name__ == "__main__":
    unittest.main(verbosity=2)
