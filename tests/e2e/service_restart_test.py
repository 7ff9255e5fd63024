#!/usr/bin/env python3
"""A rendezvous service that dies: its agent starts another one at the same address, and the workers go on."""

import itertools
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import takeover  # noqa: E402
from bed import DDPRUN, ROOT, SLOW, WHOLE, BedTestCase, free_port  # noqa: E402
from scrapes import Scrapes  # noqa: E402
from seeds import drawn_seed  # noqa: E402
from timeline import IN_CLOSE, Follower  # noqa: E402

MARKING_WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")


class ServiceTestCase(BedTestCase):
    def kill_service(self, after=0.0):
        """Kills the newest service process; returns the event of the one in its place."""
        self.bed.follower.refresh()
        started = [line for line in self.bed.events.lines if line["event"] in ("service_started", "service_restarted")]
        os.kill(started[-1]["service_pid"], signal.SIGKILL)
        return self.bed.event("service_restarted", count=len(started), after=after)


class Restarts(ServiceTestCase):
    def check_restart(self, agent):
        self.bed.workers(1, 1, alive=[agent])
        restarted = self.kill_service()
        first, second = self.bed.events.find("service_listening")[:2]
        self.assertEqual(first["port"], second["port"])
        self.assertEqual(second["pid"], restarted["service_pid"])
        self.assertEqual((1, "was killed by SIGKILL"), (restarted["times"], restarted["how"]))
        self.assertLess(restarted["ms"], 1000 * SLOW)
        said = f"the rendezvous service was killed by SIGKILL; started again after {restarted['ms']} ms"
        self.bed.wait(lambda: said in agent.text(), "what the user is told")
        return first, second

    def test_at_a_unix_socket(self):
        first, second = self.check_restart(self.bed.agent("agent", ["--standalone"]))
        self.assertEqual(first["listen"], second["listen"])

    def test_at_a_port(self):
        port = free_port()
        first, _ = self.check_restart(self.bed.agent(
            "agent", ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"]))
        self.assertEqual(port, first["port"])

    def test_at_any_free_port(self):
        self.check_restart(self.bed.agent(
            "agent", ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0"]))

    def test_with_its_status_page(self):
        agent = self.bed.agent("agent", ["--standalone", "--status_page", "localhost:0"])
        first = self.bed.event("status_page", alive=[agent])
        self.check_restart(agent)
        self.assertEqual(first["url"], self.bed.event("status_page", count=2, alive=[agent])["url"])

    def test_twin_whose_job_has_ended(self):
        agent = self.bed.agent("agent", ["--standalone"])
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.bed.follower.refresh()
        self.assertEqual([], self.bed.events.find("service_restarted"))


class StepsTestCase(ServiceTestCase):
    """Jobs whose workers mark their steps."""

    def start_nodes(self, count, *options, steps, port=None):
        """`port`: where a service of its own is; else the first node has it."""
        hosts_service = port is None
        meeting, port = free_port(), port or free_port()
        return [self.bed.run(
            f"node{rank}",
            ["--nnodes", count, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}",
             "--rdzv_conf", f"is_host={int(hosts_service and rank == 0)}", "--node_rank", rank, "--local_addr", "127.0.0.1",
             *options, "--event_log", self.bed.events.path, MARKING_WORKER, self.bed.journal.path, meeting, 5, steps])
            for rank in range(count)]

    def assert_nothing_restarted(self, nodes, terms=1):
        """`terms`: how many terms services began with; a standalone service has another one, for new jobs, in each life."""
        for node in nodes:
            self.assert_status(0, node)
        self.bed.follower.refresh()
        self.assertEqual({1}, {line["generation"] for line in self.bed.journal.find("worker")})
        self.assertEqual(["1"], [line["generation"] for line in self.bed.events.find("generation")])
        self.assertEqual([], self.bed.events.find("round_closing") + self.bed.events.find("node_lost"))
        self.assertEqual(terms, len({line["term"] for line in self.bed.events.find("service_listening")}))
        self.assertEqual("succeeded", self.bed.events.find("verdict")[-1]["outcome"])

    def name_of(self, node):
        return next(line["node"] for line in self.bed.events.find("agent_start") if line["pid"] == node.pid)


class CountersGoOn(StepsTestCase):
    """What Prometheus scrapes: no counter falls when services and workers end, and what happened is counted (docs/GOODPUT.md)."""

    ROUNDS, STEPS = (20, 500) if WHOLE else (3, 300)  # a round kills the service, not six times in 10 s, and then a worker

    def wait_for_steps(self, generation, step, nodes):
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=step, attempt=generation - 1)) == 4, f"step {step}",
                      alive=nodes)

    def test_while_services_and_workers_are_killed(self):
        nodes = self.start_nodes(2, "--max_restarts", self.ROUNDS, "--restart_backoff", 0, "--give_up_after", 0,
                                 "--quarantine_after", 0, "--status_page", "127.0.0.1:0", steps=100 * self.STEPS)
        scrapes = Scrapes(self.bed, self.bed.event("status_page", alive=nodes)["url"])
        for generation in range(1, self.ROUNDS + 1):
            self.wait_for_steps(generation, 200, nodes)
            self.kill_service()
            self.wait_for_steps(generation, self.STEPS, nodes)
            if generation < self.ROUNDS:
                os.kill(self.bed.workers(generation, 4)[3]["pid"], signal.SIGKILL)
        restarts = 'ddprun_job_restarts_total{run_id="none"}'
        self.bed.wait(lambda: scrapes.last().get(restarts) == self.ROUNDS - 1, "all restarts", alive=nodes)
        self.assertEqual([], scrapes.falls())
        # A node may not have reported the last generation's times; steps that are done again count as rework.
        seconds = {cause: scrapes.last()[f'ddprun_job_seconds_total{{run_id="none",cause="{cause}"}}']
                   for cause in ("training", "rework")}
        self.assertGreater(seconds["training"], 0.8 * self.STEPS * 0.005)
        self.assertGreater(sum(seconds.values()), 0.8 * (self.ROUNDS - 1) * self.STEPS * 0.005)


class WorkersGoOn(StepsTestCase):
    """The service that is started again has the job's journal: no worker hears of it."""

    STEPS = 600

    def test_when_the_service_is_killed_at_random_moments(self):
        seed = drawn_seed()
        print(f"DDPRUN_TEST_SEED={seed}", flush=True)
        chance = random.Random(seed)
        nodes = self.start_nodes(2, steps=self.STEPS)
        self.bed.workers(1, 4, alive=nodes)
        kills = 4
        for step in sorted(chance.sample(range(1, self.STEPS // 100), kills)):
            self.bed.wait(lambda at=step * 100: self.bed.journal.find("step", step=at), f"step {step * 100}", alive=nodes)
            restarted = self.kill_service()
            for node in nodes:
                self.bed.event("reconnected", after=restarted["t"] - restarted["ms"] / 1000, who=f"agent:{self.name_of(node)}",
                               alive=nodes)
        self.assert_nothing_restarted(nodes)
        self.assertEqual(kills, len(self.bed.events.find("service_restarted")))

    def test_all_agents_are_back_soon(self):
        nodes = self.start_nodes(3, steps=self.STEPS)
        self.bed.workers(1, 6, alive=nodes)
        listening = self.kill_service()["t"]
        for node in nodes:
            back = self.bed.event("reconnected", who=f"agent:{self.name_of(node)}", alive=nodes)
            self.assertLess(back["t"] - listening, 0.3 * SLOW)
        self.assert_nothing_restarted(nodes)

    def test_a_service_that_dies_again_and_again_is_given_up(self):
        agent = self.bed.agent("agent", ["--standalone"])
        self.bed.workers(1, 1, alive=[agent])
        for _ in range(5):
            restarted = self.kill_service()
        os.kill(restarted["service_pid"], signal.SIGKILL)
        self.assert_status(1, agent)
        self.assertIn("was killed by SIGKILL, for the 6th time within 10s, and is not started again", agent.text())

    def test_it_ends_with_its_agent(self):
        agent = self.bed.agent("agent", ["--standalone"])
        self.bed.workers(1, 1, alive=[agent])
        self.kill_service()
        self.bed.event("reconnected", alive=[agent])
        agent.signal(signal.SIGKILL)
        agent.wait(20 * SLOW)  # what is left then fails the test


class TrainingGoesOn(unittest.TestCase):
    """Steps that are saved, and a worker that is killed, too; bench/service_kill_bench.py has fifty such jobs."""

    def test_when_service_and_worker_are_killed(self):
        seed = drawn_seed()
        print(f"DDPRUN_TEST_SEED={seed}", flush=True)
        takeover.check(self, takeover.ServiceKill(random.Random(seed)), lambda _: takeover.BACK_WITHIN)


class DamagedRecord(ServiceTestCase):
    """What a service has left can't be read back: nothing goes on as if there had been nothing."""

    @staticmethod
    def damage(path):
        with open(path, "r+b") as file:
            file.write(b"no journal" * 100)

    def record_of(self, service_pid):
        """The path of the file that it holds."""
        held = [os.readlink(f"/proc/{service_pid}/fd/{fd}") for fd in os.listdir(f"/proc/{service_pid}/fd")]
        return next(path for path in held if path.endswith("/journal.db"))

    def check_restart(self, *options):
        agent = self.bed.agent("agent", ["--standalone", "--lease", 1, "--service_loss_timeout", 3, *options])
        workers = self.bed.workers(1, 1, alive=[agent])
        service_pid = self.bed.event("service_started")["service_pid"]
        self.damage(self.record_of(service_pid))
        os.kill(service_pid, signal.SIGKILL)
        said = "the rendezvous service was killed by SIGKILL and can't be started again yet: the journal '"
        self.bed.wait(lambda: said in agent.text(), "what the user is told", alive=[agent])
        self.assertIn("is damaged", agent.text())
        self.assertIn("the workers go on", agent.text())
        os.kill(workers[0]["pid"], 0)
        self.assert_status(1, agent)
        self.assertIn("within 3s (--service_loss_timeout)", agent.text())
        self.assertEqual(1, len(self.bed.events.find("service_listening")), "no other service, which knows nothing of the job")

    def test_under_a_job(self):
        self.check_restart()

    def test_under_a_job_with_a_state_dir(self):
        self.check_restart("--state_dir", self.bed.path("state"))

    def start_at_endpoint(self, *options):
        """Without is_host: the node finds out that the endpoint is its own machine's."""
        return self.bed.agent("agent", ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                                        "--state_dir", self.bed.path("state"), *options])

    def test_from_another_job(self):
        os.mkdir(self.bed.path("state"))
        with open(self.bed.path("state/journal.db"), "wb") as file:
            file.write(b"no journal" * 100)
        agent = self.start_at_endpoint()
        self.assert_status(1, agent)
        self.assertRegex(agent.text(), r"error: the journal '.*/state/journal.db' is damaged: .*Move it away")

    def test_twin_with_a_sound_one(self):
        agent = self.start_at_endpoint()
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)


class WithoutService(StepsTestCase):
    """The service is away for many leases, and nothing else fails: no step is lost."""

    # Seconds; a minute is promised, and tried with --all. Longer than the 10 s for which nodes wait whose workers can't go on.
    ABSENCE = float(os.environ.get("DDPRUN_TEST_ABSENCE", "12"))
    # Steps of 5 ms. Workers run as long as two unanswered questions may take, and their programs' start.
    STEPS = int((max(ABSENCE, 2.5 * SLOW) + 4) * 200)

    def setUp(self):
        super().setUp()
        self.run_id = f"absent{self.bed.tag}"  # other tests may have jobs on this machine, too

    def start_frozen(self, *options):
        """A job of two nodes and its service, stopped by a signal; and both agents know that it doesn't answer."""
        nodes = self.start_nodes(2, "--lease", 1, "--rdzv_id", self.run_id, *options, steps=self.STEPS)
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=100)) == 4, "step 100 of all ranks", alive=nodes)
        service = self.bed.event("service_listening")["pid"]
        os.kill(service, signal.SIGSTOP)
        self.addCleanup(self.thaw, service)
        for node in nodes:
            self.bed.event("service_lost", who=f"agent:{self.name_of(node)}", alive=nodes)
        return nodes, service

    @staticmethod
    def thaw(service):
        try:
            os.kill(service, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def newest_step(self):
        self.bed.follower.refresh()
        return max(line["step"] for line in self.bed.journal.find("step"))

    def ask(self, *options):
        return subprocess.run([DDPRUN, "status", "--timeout", str(1 * SLOW), *options], env=self.bed.environment, text=True,
                              capture_output=True, check=False, timeout=60 * SLOW)

    def assert_told(self, nodes, text):
        for node in nodes:
            self.assertRegex(text, rf"job {self.run_id}: no answer of the rendezvous service at 127.0.0.1:\d+ for \S+ m?s")
            self.assertIn(f"  node {self.name_of(node)} of this machine: running, generation 1; its workers need no service\n",
                          text)
        self.assertRegex(text, r"the service is tried for 1 min \d+ s more, then this node ends|tried for \d+\.\d s more")

    def test_frozen(self):
        nodes, service = self.start_frozen()
        began, before = time.monotonic(), self.newest_step()
        self.assert_told(nodes, self.ask("--rdzv_id", self.run_id).stdout)
        cut_off = json.loads(self.ask("--rdzv_id", self.run_id, "--json").stdout)["cut_off"]
        self.assertEqual({(self.run_id, "running", True)},
                         {(node["run_id"], node["state"], node["absence"]["workers_go_on"]) for node in cut_off})
        self.assertEqual(2, len(cut_off))
        self.bed.wait(lambda: time.monotonic() > began + self.ABSENCE, "the absence to pass", timeout=2 * self.ABSENCE + 60,
                      alive=nodes)
        self.assertGreater(self.newest_step(), before, "the workers train meanwhile")
        self.thaw(service)
        self.assert_nothing_restarted(nodes)

    def test_stopped_and_started_again(self):
        """A standalone service, as under systemd, on a machine that reboots."""
        port = free_port()
        command = ["rendezvous", "--listen", f"127.0.0.1:{port}", "--state_dir", self.bed.path("state"),
                   "--event_log", self.bed.events.path]
        service = self.bed.run("service", command)
        nodes = self.start_nodes(2, "--lease", 1, "--rdzv_id", self.run_id, port=port, steps=self.STEPS)
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=100)) == 4, "step 100 of all ranks", alive=nodes)
        service.signal(signal.SIGKILL)
        service.wait(20 * SLOW)
        stopped = time.monotonic()
        for node in nodes:
            self.bed.event("service_lost", who=f"agent:{self.name_of(node)}", alive=nodes)
        self.assert_told(nodes, self.ask("--rdzv_id", self.run_id).stdout)
        self.bed.wait(lambda: time.monotonic() > stopped + self.ABSENCE, "the absence to pass", timeout=2 * self.ABSENCE + 60,
                      alive=nodes)
        self.bed.run("service-again", command)
        self.assert_nothing_restarted(nodes, terms=2)

    def test_twin_that_is_given_up(self):
        nodes, _ = self.start_frozen("--service_loss_timeout", 2)
        for node in nodes:
            self.assert_status(1, node)
            self.assertRegex(node.text(), r"no answer within 2s \(--service_loss_timeout\)")

    def test_workers_that_fail_meanwhile_end_the_wait_sooner(self):
        nodes, _ = self.start_frozen()
        self.bed.signal_workers(self.bed.journal.find("worker"), signal.SIGKILL)
        for node in nodes:
            self.assert_status(1, node, 10 + 20 * SLOW)
            self.assertIn("without it this node's workers can't go on", node.text())
            self.assertIn("no answer within 10s while this node has no workers that could go on", node.text())


class AnotherHost(ServiceTestCase):
    """The agent that hosts the service is killed with it; one that is started in its place has its --state_dir."""

    def start_node(self, rank, name, *options):
        return self.bed.agent(name, ["--nnodes", 2, "--nproc_per_node", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                     f"127.0.0.1:{self.port}", "--rdzv_conf", f"is_host={int(rank == 0)}", "--node_rank", rank,
                                     "--rdzv_id", "job", "--local_addr", "127.0.0.1", *options])

    def lose_host(self, *options):
        """Starts two nodes, kills the first and starts it again. Returns (the first, the second)."""
        self.port = free_port()
        host, other = (self.start_node(rank, f"node{rank}", *options) for rank in range(2))
        self.bed.workers(1, 2, alive=(host, other))
        host.signal(signal.SIGKILL)
        host.wait(20 * SLOW)
        return self.start_node(0, "node0-again", *options), other

    def test_takes_over(self):
        state = os.path.join(self.bed.folder, "state")
        started = time.monotonic()
        host, other = self.lose_host("--state_dir", state, "--service_loss_timeout", 60 * SLOW)
        self.bed.finish(self.bed.workers(2, 2, alive=(host, other)))
        for node in (host, other):
            self.assert_status(0, node)
        formed = self.bed.events.find("generation")
        self.assertEqual(["1", "2"], [line["generation"] for line in formed])
        again = [line for line in self.bed.events.find("agent_start") if line["t"] > started][-1]
        self.assertLess(formed[1]["t"] - again["t"], 1.0 * SLOW)
        self.assertEqual({0}, {line["restart_count"] for line in self.bed.journal.find("worker")})

    def test_takes_over_from_a_service_that_is_yet_to_end(self):
        """On a busy machine the service may not have noticed yet that its agent was killed."""
        self.port = free_port()
        options = ("--state_dir", os.path.join(self.bed.folder, "state"))
        host, other = (self.start_node(rank, f"node{rank}", *options, "--service_loss_timeout", 60 * SLOW) for rank in range(2))
        self.bed.workers(1, 2, alive=(host, other))
        service = self.bed.event("service_started")["service_pid"]
        os.kill(service, signal.SIGSTOP)
        host.signal(signal.SIGKILL)
        host.wait(20 * SLOW)
        tried = Follower()
        self.addCleanup(tried.close)
        tried.watch(os.path.join(options[1], "journal.db"), IN_CLOSE)  # the service holds it, stopped
        again = self.start_node(0, "node0-again", *options)
        asked = itertools.count()
        tried.wait(lambda: next(asked), "the new service to find the journal locked", 20 * SLOW, alive=[again])
        os.kill(service, signal.SIGCONT)
        self.bed.finish(self.bed.workers(2, 2, alive=(again, other)))
        for node in (again, other):
            self.assert_status(0, node)

    def test_twin_without_it_the_other_node_ends(self):
        host, other = self.lose_host("--service_loss_timeout", 60 * SLOW)
        self.assert_status(1, other)
        self.assertIn("term", other.text())
        host.signal(signal.SIGTERM)
        host.wait(20 * SLOW)


class StateDir(BedTestCase):
    def test_is_made(self):
        folder = self.bed.path("state/of/job")
        agent = self.bed.agent("agent", ["--standalone", "--state_dir", folder])
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.assertTrue(stat.S_ISDIR(os.stat(folder).st_mode))

    def test_one_that_cannot_be_is_named(self):
        for state_dir in (["--state_dir", "/dev/null/state"], ["--rdzv_conf", "state_dir=/dev/null/state"]):
            agent = self.bed.agent("agent", ["--standalone", *state_dir])
            self.assert_status(1, agent)
            self.assertIn("error: --state_dir: create directory '/dev/null/state'", agent.text())
        service = self.bed.run("service", ["rendezvous", "--listen", "127.0.0.1:0", "--state_dir", "/dev/null/state"])
        self.assert_status(1, service)
        self.assertIn("error: --state_dir: create directory '/dev/null/state'", service.text())

    def test_twin_that_does_not_host_needs_none(self):
        port = free_port()
        common = ["--nnodes", 2, "--master_addr", "127.0.0.1", "--master_port", port]
        host = self.bed.agent("host", [*common, "--node_rank", 0])
        other = self.bed.agent("other", [*common, "--node_rank", 1, "--state_dir", "/dev/null/state"])
        self.bed.finish(self.bed.workers(1, 2, alive=[host, other]))
        self.assert_status(0, host)
        self.assert_status(0, other)


if __name__ == "__main__":
    unittest.main(verbosity=2)
