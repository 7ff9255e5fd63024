#!/usr/bin/env python3
"""Workers that talk over NCCL are killed, and who lives keeps process and state. On one GPU, which all of them share."""

import os
import random
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import survivors  # noqa: E402

SEED = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
NCCL_HOST = os.environ.get("DDPRUN_NCCL_HOST")  # nccl_host.cc
PLUGIN = os.environ.get("DDPRUN_NCCL_PLUGIN")  # "": it isn't built here
KILLS = 4
IN_PROCESS = ("--in_process_restart",)


@unittest.skipUnless(os.access("/dev/nvidiactl", os.R_OK), "there is no NVIDIA GPU here")
@unittest.skipUnless(PLUGIN, "this build has no NCCL plug-in: there were no CUDA toolkit and nccl.h")
class Survivors(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}", flush=True)

    def train(self, nodes, per_node, kills=KILLS, options=IN_PROCESS, launch=("--warm", "on")):
        training = survivors.LiveTraining(nodes, per_node, random.Random(SEED), backend="nccl", options=options, launch=launch)
        training.bed.environment.update(LD_PRELOAD=NCCL_HOST, DDPRUN_NCCL_PLUGIN=PLUGIN, CUDA_VISIBLE_DEVICES="0",
                                        NCCL_SOCKET_IFNAME="lo")
        survivors.run(training, kills)

    def test_started_ahead(self):
        self.train(1, 3)

    def test_cold(self):
        self.train(1, 3, launch=())

    def test_new_workers_are_healed_beside_a_step(self):
        self.train(2, 2, options=(*IN_PROCESS, "--healing", "beside"))

    def test_shares_come_back(self):
        for stage in ("1", "2", "3"):
            with self.subTest(stage=stage):
                self.train(2, 2, options=(*IN_PROCESS, "--zero_stage", stage, "--replicas", "2"))

    def test_twin_without_the_option_starts_all_workers_anew(self):
        with self.assertRaisesRegex(survivors.Wrong, "2 workers were started anew that nobody had killed"):
            self.train(1, 3, kills=1, options=())


if __name__ == "__main__":
    unittest.main(verbosity=2)
