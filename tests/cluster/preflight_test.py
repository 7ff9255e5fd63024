#!/usr/bin/env python3
"""ddprun test where a host doesn't get through to the endpoint, and --preflight of a run on hosts."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import network_check as check  # noqa: E402
from bed import SLOW  # noqa: E402
from job import ClusterTestCase, main  # noqa: E402


class EndpointsHost(ClusterTestCase):
    """One of three hosts can't reach the endpoint: the check runs on the other two, and the report names the third."""

    hosts = 3

    def start_check(self, ranks):
        static = ["test", "--network_only", "--nnodes", 3, "--master_addr", "n1", "--master_port", check.PORT, "--rdzv_conf",
                  "join_timeout=4"]
        return [self.bed.run(f"rank{rank}", [*static, "--node_rank", rank, *(["--json"] if rank == 0 else [])], host=rank + 1)
                for rank in ranks]

    def check(self, *cuts):
        # With all links slowed, the result is the network's speed, not the share of the CPUs: no link is slower than another.
        check.all_slow(self.hosts)(self.cluster)
        for source, target in cuts:
            self.cluster.cut_one_way(source, target)
        first, second, third = self.start_check((0, 1, 2))
        for agent in (first, second, third):
            self.assert_status(1, agent)
        report = check.report_of(first.text())["network"]
        self.assertEqual([check.node("node rank 2", "node_missing", "both")], check.accusations(report))
        self.assertEqual({("n1", "n2"), ("n2", "n1")}, {(way["from"], way["to"]) for way in report["ways"] if way["arrived"]})
        self.assertIn("node rank 2 never came", second.text())
        # The missing node itself reports what it could not reach.
        # The kernel reports no route if even the ARP request isn't answered in time.
        self.assertRegex(third.text(), "error: can't join the job at n1:.*(the way there or back is cut|"
                                       "does a firewall drop packets|No route to host)")

    def test_the_way_from_the_host_is_cut(self):
        self.check((1, 3))

    def test_the_way_to_the_host_is_cut(self):
        self.check((3, 1))

    def test_a_node_that_was_not_started(self):
        agents = self.start_check((0, 1))
        for agent in agents:
            self.assert_status(1, agent)
        self.assertIn("node rank 2 never came", agents[1].text())

    def test_twin_all_come(self):
        agents = self.start_check((0, 1, 2))
        for agent in agents:
            agent.wait(60 * SLOW)  # on a busy machine one way may be slower than the others, which is a warning
        report = check.report_of(agents[0].text())["network"]
        self.assertEqual(3, sum(node["answered"] for node in report["nodes"]))
        self.assertTrue(report["ways"] and all(way["arrived"] for way in report["ways"]), report)
        for agent in agents:
            self.assertNotIn("never came", agent.text())


class Preflight(ClusterTestCase):
    """--preflight of a run on three hosts."""

    hosts = 3

    def run_job(self, options=("--preflight",)):
        return [self.start(i, 3, options=options, restarts=3) for i in (1, 2, 3)]

    def test_a_cut_way_ends_the_job_before_a_worker_starts(self):
        self.cluster.cut_one_way(2, 3)
        report_file = self.bed.path("report.json")
        agents = self.run_job(options=("--preflight", "--report_file", report_file))
        for agent in agents:
            self.assert_status(1, agent)
            self.assertIn("n2 to n3 is cut", agent.text())
            self.assertIn("no worker was started", agent.text())
        with open(report_file, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(("failed", 1, "preflight"), (report["outcome"], report["status"], report["rule"]))
        self.assertEqual([], self.bed.journal.find("worker"))
        # The service has it, too: once, and without a restart.
        verdict = self.bed.event("verdict", who="service")
        self.assertEqual(("failed", "preflight"), (verdict["outcome"], verdict["rule"]))
        self.assertIn("n2 to n3 is cut", verdict["reason"])
        self.assertEqual(1, len(self.bed.events.find("generation", who="service")))

    def test_twin_without_it_workers_start(self):
        self.cluster.cut_one_way(2, 3)
        agents = self.run_job(options=())
        self.finish(agents, 1, 3)

    def test_a_lossy_way_is_a_warning(self):
        self.cluster.lose_one_way(2, 3, 10)
        agents = self.run_job()
        self.finish(agents, 1, 3)
        for agent in agents:
            self.assertIn("warning: n2 to n3 loses packets", agent.text())

    def test_only_before_the_first_start(self):
        agents = self.run_job()
        workers = self.bed.next_workers(0, 3, 3, alive=agents)
        self.bed.signal_workers(workers[:1], 9)
        self.finish(agents, 2, 3)
        self.assertEqual(1, agents[0].text().count("network: 3 nodes"))


if __name__ == "__main__":
    main()
