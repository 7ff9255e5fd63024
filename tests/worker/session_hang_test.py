#!/usr/bin/env python3
"""A worker of a Session that stands still in its first steps: the others wait for it in a collective, so it is named."""

import fcntl
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, BedTestCase  # noqa: E402

PROBE = os.environ["DDPRUN_SESSION_PROBE"]


class SessionHang(BedTestCase):
    def setUp(self):
        super().setUp()
        fault = self.bed.journal.path + ".fault"
        self.gate = os.open(fault + ".gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.addCleanup(os.close, self.gate)
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        with open(fault, "w", encoding="utf-8") as sink:
            sink.write("forward 1 hold\n")

    def start(self, backend, *options):
        program = [PROBE, "live", self.bed.journal.path, "--epochs", 1000000, "--batch_size", 2, "--learning_rate", 0.001,
                   "--lr_schedule", "constant", "--backend", backend]
        launch = [*options, "--nproc_per_node", 2, "--event_log", self.bed.events.path, "--no_python"]
        return self.bed.run("ddprun", [*launch, *program], env={"SESSION_PROBE_WIDTH": "8"})

    def named(self, backend):
        agent = self.start(backend)
        why = self.bed.event("hang_named", rank="1", timeout=30 * SLOW, alive=[agent])["why"]
        self.assertRegex(why, "^no progress in .*; hasn't come to collective [0-9]+, for which rank 0 has waited ")
        # The hung rank may still go on, and does.
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.bed.event("hang_over", rank="1", alive=[agent])

    def test_its_stack_has_names(self):
        """LibTorch's symbols alone would take longer than a hung worker is let live."""
        if shutil.which("gdb") is None:
            self.skipTest("gdb isn't installed")
        agent = self.start("auto", "--hang_timeout", 5)
        self.assert_status(1, agent, 60 * SLOW)
        self.assertRegex(agent.text(), r"(?m)^ +#[0-9]+ .*RunSession\(")

    def test_in_shared_memory(self):
        self.named("auto")

    def test_over_gloo(self):
        """Gloo's ranks poll while they wait: a rank that only polls doesn't count as busy."""
        self.named("gloo")


if __name__ == "__main__":
    unittest.main(verbosity=2)
