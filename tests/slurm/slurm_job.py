"""Jobs of ddprun in a Slurm of nodes n1 to n3."""

import os
import shlex
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import cluster  # noqa: E402
import slurm  # noqa: E402
from bed import DDPRUN, ROOT, SLOW, BedTestCase, has_failed  # noqa: E402

TRAINING = os.path.join(ROOT, "tests", "support", "saving_worker.py")


def main():
    """unittest.main() on namespace hosts; without Slurm every test is skipped with the reason."""
    reason = slurm.why_not()
    if reason:
        os.environ["DDPRUN_TEST_NO_SLURM"] = reason
    cluster.main()


class SlurmTestCase(cluster.ClusterTestCaseMixin, BedTestCase):
    """Each test has a Slurm of its own: nodes that were killed stay down."""

    hosts = 4
    node_name = "n"  # of Slurm's nodes, before their number

    @classmethod
    def setUpClass(cls):
        if os.environ.get("DDPRUN_TEST_NO_SLURM"):
            raise unittest.SkipTest(os.environ["DDPRUN_TEST_NO_SLURM"])
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.slurm = slurm.Slurm(self.cluster, 3, tempfile.mkdtemp(prefix="ddprun-slurm-"), self.node_name)
        self.addCleanup(self.slurm.close)

    def tearDown(self):
        if has_failed(self):
            print(self.slurm.story(), flush=True)

    def line(self, options="", step_ms=20, steps=10):
        """A command line of ddprun that trains and names nothing but `options`."""
        words = [DDPRUN, *options.split(), "--event_log", self.bed.events.path, TRAINING, self.bed.journal.path,
                 self.bed.folder, str(step_ms), str(steps)]
        return shlex.join(words)

    def submit(self, line, *options):
        """sbatch of a script with this one line; its status is the job's."""
        return self.slurm.submit(f"#!/bin/bash\n{line}\n", *options, env=self.bed.environment)

    def workers(self, count, run, world=None, timeout=None):
        """The journal lines of `count` workers; None stands for any run, and for any world."""
        wanted = {key: value for key, value in (("run", run), ("world", world)) if value is not None}

        def there():
            lines = self.bed.journal.find("worker", **wanted)
            return lines if len(lines) >= count else None
        lines = self.bed.wait(there, f"{count} workers of run {run}, world {world}", timeout or 30 * SLOW)
        return sorted(lines, key=lambda line: line["rank"])

    def assert_completed(self, job, timeout=60):
        self.assertEqual("COMPLETED", self.slurm.wait_state(job, "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT",
                                                            timeout=timeout * SLOW), self.slurm.output(job))
