#!/usr/bin/env python3
"""A link goes down for longer than the lease, and comes back: silence is a suspicion (R4). bench/cuts_bench.py has the table."""

import job
from bed import SLOWNESS

CUT = 7  # seconds: longer than the lease that nobody chose, 5 s


class SilentNode(job.ClusterTestCase):
    def cut(self, host, agents):
        """Host's link is down until its silence was noticed, and for CUT seconds at least."""
        self.cluster.pull_cable(host)
        silent = self.bed.event("node_silent", alive=agents)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), (CUT - 5) / SLOWNESS)
        return silent

    def check_back(self, agents, generation, world):
        """The node is back in the same generation, and the job ends well in it."""
        self.cluster.heal()
        self.bed.event("node_back", alive=agents)
        self.finish(agents, generation, world)
        for event in ("node_lost", "round_closing", "isolated"):
            self.assertEqual([], self.bed.events.find(event))
        self.assertEqual([], self.generations_after(generation))

    def test_of_a_fixed_job_is_back_in_its_generation(self):
        agents, generation = self.start_all(2, "2", restarts=0)
        self.assertEqual("needed", self.cut(2, agents)["why"])
        self.check_back(agents, generation, 2)

    def test_the_services_own_link(self):
        """The service's own node is heard, and the other one isn't: the same as above, from the other side."""
        agents, generation = self.start_all(2, "2", restarts=0)
        self.cut(1, agents)
        self.check_back(agents, generation, 2)

    def test_status_says_what_is_waited_for(self):
        run_id = f"cut{self.bed.tag}"
        agents, generation = self.start_all(2, "2", options=("--rdzv_id", run_id))
        self.cut(2, agents)
        status = self.bed.run("status", ["status", "--rdzv_endpoint", f"n1:{job.PORT}", "--rdzv_id", run_id], host=1)
        self.assert_status(0, status)
        self.assertRegex(status.text(), r"node n2\S*( on n2)? hasn't been heard for \d+ s; its workers may still run\. "
                         r"Waiting up to .* more for it, because the job needs 2 nodes")
        self.check_back(agents, generation, 2)

    def test_twin_with_a_lease_that_the_user_chose(self):
        agents, _ = self.start_all(2, "2", conf="lease=2")
        self.cluster.pull_cable(2)
        self.bed.event("node_lost", why="lease expired", alive=agents[:1])
        self.assertEqual([], self.bed.events.find("node_silent"))

    def test_of_an_elastic_job_that_has_little_to_lose_is_lost(self):
        """The generation has run for less than the lease: going on without the node is cheaper."""
        agents, generation = self.start_all(3, "2:3", conf="last_call_timeout=30")
        self.cluster.power_off(3)
        self.bed.event("node_lost", why="lease expired", alive=agents[:2], timeout=60 * SLOWNESS)
        self.finish(agents[:2], self.bed.next_workers(generation, 2, 2, alive=agents[:2])[0]["generation"], 2)

    def test_a_machine_that_is_gone_is_replaced(self):
        agents, generation = self.start_all(2, "2")
        self.cluster.power_off(2)
        self.bed.event("node_silent", alive=agents[:1])
        replacement = self.start(3, "2")
        self.bed.event("node_lost", why="lease expired", alive=agents[:1], timeout=90 * SLOWNESS)
        workers = self.bed.next_workers(generation, 2, 2, alive=[agents[0], replacement])
        self.assertEqual(["n1", "n3"], [line["host"] for line in workers])
        self.finish([agents[0], replacement], workers[0]["generation"], 2)


if __name__ == "__main__":
    job.main()
