#!/usr/bin/env python3
"""Network faults of ddprun chaos (docs/CHAOS.md), on hosts made of namespaces."""

import json
import signal

import job
from bed import SLOW, WORKER
from timeline import leftovers


class Chaos(job.ClusterTestCase):
    def start_chaos(self, host, plan, options=("--nnodes", "1:2", "--rdzv_conf", "lease=1,last_call_timeout=30")):
        plan = self.bed.write("plan.yaml", plan)
        return self.bed.run(f"n{host}", [
            "chaos", "--chaos_report", self.bed.path(f"n{host}.json"), plan, "--rdzv_backend", "c10d", "--rdzv_endpoint",
            f"n1:{job.PORT}", "--rdzv_id", "job", *options, "--event_log", self.bed.events.path, WORKER,
            self.bed.journal.path, "wait"], host=host)

    def fault(self):
        with open(self.bed.path("n1.json"), encoding="utf-8") as source:
            report = json.load(source)
        self.assertEqual(1, len(report["faults"]), report)
        return report["faults"][0]

    def assert_healed(self, host):
        self.cluster.on_host(host, "sh", "-c", "! nft list tables | grep ddprun_chaos")

    def two(self, plan):
        """Node 0 is on n1, which hosts the service."""
        agents = [self.start_chaos(1, plan)]
        self.bed.event("node_joined", alive=agents)
        return [*agents, self.start_chaos(2, plan)]

    def test_a_node_that_is_cut_off_comes_back(self):
        agents = self.two("faults:\n  - {fault: network_cut, node: n2, at: 200ms, for: 4s}\n")
        self.bed.event("fault_over", timeout=30 * SLOW, alive=agents)
        self.assert_healed(2)
        both = self.bed.next_workers(1, 2, 2, timeout=40 * SLOW, alive=agents)
        self.bed.finish(both)
        for agent in agents:
            self.assert_status(0, agent)
        fault = self.fault()
        self.assertEqual(("restarted", "membership_change"), (fault["outcome"], fault["rule"]))
        self.assertTrue(500 < fault["noticed_ms"] <= fault["released_ms"] < fault["over_ms"], fault)

    def test_twin_shorter_than_the_lease(self):
        agents = self.two("faults:\n  - {fault: network_cut, node: n2, at: 200ms, for: 100ms}\n")
        self.bed.event("fault_over", alive=agents)
        self.finish(agents, 1, 2)
        self.assertEqual("ridden out", self.fault()["outcome"])

    def test_lost_packets_are_ridden_out(self):
        agents = self.two("faults:\n  - {fault: packet_loss, node: n2, loss: 5%, at: 200ms, for: 2s}\n")
        self.bed.event("fault_over", alive=agents)
        self.finish(agents, 1, 2)
        self.assertEqual("ridden out", self.fault()["outcome"])

    def test_the_network_is_healed_when_chaos_is_killed(self):
        agent = self.start_chaos(2, "faults:\n  - {fault: network_cut, node: 0, at: 0s, for: 10m}\n",
                                 ("--rdzv_endpoint", "n2", "--nnodes", "1"))
        self.bed.event("fault", alive=[agent])
        self.cluster.on_host(2, "sh", "-c", "nft list tables | grep ddprun_chaos")
        agent.signal(signal.SIGKILL)
        agent.wait(20 * SLOW)
        self.assertEqual({}, leftovers(self.bed.tag, 5 * SLOW))
        self.assert_healed(2)


if __name__ == "__main__":
    job.main()
