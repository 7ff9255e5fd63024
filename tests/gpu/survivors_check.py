#!/usr/bin/env python3
"""C++ workers are killed; the others keep process and state. How long no step ends (tests/support/survivors.py)."""

import os
import random
import statistics
import unittest

from gpu_bed import BACKEND, NCCL_PLUGIN, ON_GPU, RANKS, figure, shared_gpu

import survivors

SEED = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
IN_PROCESS = ("--in_process_restart",)


@unittest.skipUnless(survivors.PROBE, "DDPRUN_SESSION_PROBE names no program")
class Survivors(unittest.TestCase):
    def setUp(self):
        print(f"DDPRUN_TEST_SEED={SEED}", flush=True)
        self.assertTrue(NCCL_PLUGIN or not ON_GPU, "there is no NCCL plug-in in this bundle")

    def train(self, name, nodes, per_node, kills, options=IN_PROCESS, launch=("--warm", "on")):
        training = survivors.LiveTraining(nodes, per_node, random.Random(SEED), backend=BACKEND, options=options, launch=launch)
        if ON_GPU:
            training.bed.environment.update(shared_gpu())
        survivors.run(training, kills)
        stalls = [stall for moment in training.undisturbed if (stall := training.stall_after(moment)) is not None]
        if stalls:  # none, where each kill came into the recovery of another
            figure(f"{name}_stall", statistics.median(stalls), "s")

    def test_started_ahead(self):
        self.train("warm", 1, RANKS, 20 if ON_GPU else 2)

    def test_cold(self):
        self.train("cold", 1, RANKS, 5 if ON_GPU else 1, launch=("--warm", "off"))

    @unittest.skipUnless(ON_GPU, "worker_survivors has it over Gloo")
    def test_new_workers_are_healed_beside_a_step(self):
        self.train("healed_beside", 2, 2, 3, (*IN_PROCESS, "--healing", "beside"))

    def test_shares_come_back(self):
        for stage in ("1", "2", "3") if ON_GPU else ("3",):
            with self.subTest(stage=stage):
                self.train(f"zero{stage}", 2, 2, 3 if ON_GPU else 1, (*IN_PROCESS, "--zero_stage", stage, "--replicas", "2"))

    @unittest.skipUnless(ON_GPU, "worker_survivors has it over Gloo")
    def test_twin_without_the_option_starts_all_workers_anew(self):
        with self.assertRaisesRegex(survivors.Wrong, "2 workers were started anew that nobody had killed"):
            self.train("anew", 1, RANKS, 1, options=())


if __name__ == "__main__":
    unittest.main(verbosity=2)
