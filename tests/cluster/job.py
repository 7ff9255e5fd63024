"""A job of ddprun agents on namespace hosts n1, n2, …; n1 holds the endpoint."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOWNESS, BedTestCase  # noqa: E402
from cluster import ClusterTestCaseMixin, main  # noqa: E402,F401
from timeline import TimelineError  # noqa: E402

PORT = 29400


class ClusterTestCase(ClusterTestCaseMixin, BedTestCase):
    def start(self, host, nnodes, endpoint=f"n1:{PORT}", conf="", restarts=3, worker=("wait",), options=(), name=None):
        """One agent of a c10d job on host i."""
        arguments = ["--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_id", "job",
                     "--max_restarts", restarts, *(["--rdzv_conf", conf] if conf else []), *options]
        return self.bed.agent(name or f"agent{host}", arguments, worker, host=host)

    def start_all(self, hosts, nnodes, **options):
        """Agents on hosts 1 … `hosts`, and their first full generation: (agents, its number)."""
        agents = [self.start(i, nnodes, **options) for i in range(1, hosts + 1)]
        workers = self.bed.next_workers(0, hosts, hosts, alive=agents)
        return agents, workers[0]["generation"]

    def finish(self, agents, generation, world):
        """Lets the newest generation's workers end well, and checks that every agent ends with 0."""
        workers = self.bed.next_workers(generation - 1, world, world, alive=agents)
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)

    def assert_quiet(self, condition, seconds):
        """The condition must not become true within the time."""
        try:
            self.bed.wait(condition, "nothing", seconds * SLOWNESS)
        except TimelineError:
            return
        self.fail("it happened although it must not")

    def generations_after(self, generation):
        return [line for line in self.bed.journal.find("worker") if line["generation"] > generation]
