#!/usr/bin/env python3
"""The network fails: silence, one direction only, the service's node gone."""

import os
import signal
import time

import job
from bed import SLOW, SLOWNESS
from timeline import leftovers

LEASE = 1.0
CONF = f"lease={LEASE:g},last_call_timeout=30"


class Cuts(job.ClusterTestCase):
    def noticed(self, cut, within):
        """Runs three elastic nodes, cuts n3 off, and expects the other two to go on."""
        agents, generation = self.start_all(3, "1:3", conf=CONF)
        started = self.bed.workers(generation, 3)[-1]["t"]
        cut()
        lost = self.bed.event("node_lost", after=started, alive=agents[:2], timeout=within + 5 * SLOW)
        alone = self.bed.next_workers(generation, 2, 2, alive=agents[:2])
        self.assertEqual(["n1", "n2"], [line["host"] for line in alone])
        self.assertEqual([0, 0], [line["restart_count"] for line in alone])
        self.assertIn("n3", str(lost))
        return agents, alone[0]["generation"]

    def test_cable_pulled(self):
        agents, generation = self.noticed(lambda: self.cluster.pull_cable(3), LEASE + 0.5)
        self.finish(agents[:2], generation, 2)

    def test_one_way_cut_toward_the_service(self):
        agents, generation = self.noticed(lambda: self.cluster.cut_one_way(3, 1), LEASE + 0.5)
        self.finish(agents[:2], generation, 2)

    def test_one_way_cut_from_the_service(self):
        agents, generation = self.noticed(lambda: self.cluster.cut_one_way(1, 3), LEASE + 0.5)
        self.finish(agents[:2], generation, 2)

    def test_long_lease_is_patient(self):
        """Negative control: the lease is what notices; a longer one doesn't, and a healed cut costs nothing."""
        agents, generation = self.start_all(3, "1:3", conf="lease=30,last_call_timeout=30")
        self.cluster.pull_cable(3)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), 1.5 * LEASE)
        self.cluster.heal()
        self.finish(agents, generation, 3)

    def test_outage_below_the_lease_costs_nothing(self):
        """Longer than gRPC's keepalive (2 + 3 s), so that all connections are new afterwards."""
        agents, generation = self.start_all(3, "1:3", conf="lease=30,last_call_timeout=30")
        self.cluster.pull_cable(3)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), 6.0 / SLOWNESS)  # the outage itself
        healed = time.monotonic()
        self.cluster.heal()
        self.bed.event("reconnected", after=healed, alive=agents)
        self.finish(agents, generation, 3)
        self.assertFalse(self.bed.events.find("node_lost"))

    def test_lost_packets_raise_no_alarm(self):
        agents, generation = self.start_all(3, "1:3", conf=CONF)
        self.cluster.lose(5)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), 5 * LEASE)
        self.finish(agents, generation, 3)

    def test_slow_link_raises_no_alarm(self):
        agents, generation = self.start_all(3, "1:3", conf=CONF)
        for host in (1, 3):
            self.cluster.slow_down(host, "64kbit")
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), 3 * LEASE)
        self.finish(agents, generation, 3)

    def test_cut_between_workers_nodes_is_not_the_services_business(self):
        agents, generation = self.start_all(3, "1:3", conf=CONF)
        self.cluster.cut_one_way(2, 3)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), 1.5 * LEASE)
        self.finish(agents, generation, 3)

    def test_healed_node_joins_again(self):
        agents, generation = self.noticed(lambda: self.cluster.pull_cable(3), LEASE + 0.5)
        self.cluster.heal()
        grown = self.bed.next_workers(generation, 3, 3, alive=agents)
        self.finish(agents, grown[0]["generation"], 3)


class ServiceCutOff(job.ClusterTestCase):
    """The network of the service fails, and that of the workers doesn't."""

    ABSENCE = float(os.environ.get("DDPRUN_TEST_ABSENCE", 4 * LEASE))  # a minute is promised

    def cut(self, hosts, *options):
        agents, generation = self.start_all(hosts, f"1:{hosts}", conf=CONF, options=options)
        self.cluster.cut_port(job.PORT)
        return agents, generation

    def test_nobody_is_lost(self):
        run_id = f"cut{self.bed.tag}"
        agents, generation = self.cut(3, "--rdzv_id", run_id)
        isolated = self.bed.event("isolated", alive=agents)
        for node in ("n2", "n3"):
            self.wait_for_absence(node)
        self.assert_told(run_id, agents)
        self.assert_quiet(lambda: self.bed.events.find("node_lost"), self.ABSENCE / SLOWNESS)
        self.assertEqual([], self.bed.events.find("round_closing"))
        self.cluster.heal()
        over = self.bed.event("isolation_over", alive=agents)
        self.assertGreaterEqual(over["t"] - isolated["t"], self.ABSENCE)
        self.finish(agents, generation, 3)
        self.assertEqual([], self.bed.events.find("node_lost"))
        self.assertEqual([], self.generations_after(generation))

    def wait_for_absence(self, host):
        self.bed.wait(lambda: [line for line in self.bed.events.find("service_lost") if line["who"].startswith(f"agent:{host}#")],
                      f"{host} to miss its service")

    def assert_told(self, run_id, agents):
        """What `ddprun status` says on a machine that is cut off; all hosts here share the agents' folder."""
        status = self.bed.run("status", ["status", "--rdzv_id", run_id, "--timeout", 1 * SLOW], host=2)
        status.wait(60 * SLOW)
        for agent in agents[1:]:
            name = next(line["node"] for line in self.bed.events.find("agent_start") if line["pid"] == agent.pid)
            self.assertIn(f"  node {name} of this machine: running, generation 1; its workers need no service\n", status.text())
        self.assertRegex(status.text(), rf"job {run_id}: no answer of the rendezvous service at n1:{job.PORT} for \S+ m?s")
        self.assertRegex(status.text(), r"the service is tried for (1 min )?[\d.]+ s more, then this node ends")

    def test_twin_of_which_one_node_may_as_well_be_dead(self):
        agents, _ = self.cut(2)
        self.bed.event("node_lost", alive=agents)
        self.assertEqual([], self.bed.events.find("isolated"))


class ServiceLost(job.ClusterTestCase):
    TIMEOUT = 1.5

    def check_survivor_ends(self, survivor):
        self.assert_status(1, survivor, (self.TIMEOUT + 2) * SLOW)
        self.assertIn(f"n1:{job.PORT}", survivor.text(), "names the service that was lost")

    def start_two(self):
        agents, _ = self.start_all(2, "1:2", options=("--service_loss_timeout", self.TIMEOUT), conf="lease=1")
        return agents

    def test_host_agent_killed(self):
        agents = self.start_two()
        agents[0].signal(signal.SIGKILL)
        agents[0].wait(5 * SLOW)
        self.check_survivor_ends(agents[1])

    def test_host_unreachable(self):
        agents = self.start_two()
        self.cluster.pull_cable(1)
        self.check_survivor_ends(agents[1])

    def test_short_absence_is_survived(self):
        """Negative control: back before the timeout, nothing restarts."""
        agents, generation = self.start_all(2, "1:2", options=("--service_loss_timeout", 30), conf="lease=30")
        self.cluster.pull_cable(1)
        # A second of the network's time, also where programs are slow: TCP gives up after three and a half.
        self.assert_quiet(lambda: any(agent.ended() for agent in agents), 1 / SLOWNESS)
        self.cluster.heal()
        self.finish(agents, generation, 2)

    def test_nothing_is_left_on_the_hosts_side(self):
        """The killed agent's workers and service are gone before its node could be used again."""
        agents = self.start_two()
        agents[1].signal(signal.SIGTERM)
        agents[1].wait(5 * SLOW)
        agents[0].signal(signal.SIGKILL)
        agents[0].wait(5 * SLOW)
        self.assertEqual({}, leftovers(self.bed.tag, 2 * SLOW))


if __name__ == "__main__":
    job.main()
