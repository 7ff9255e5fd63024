#!/usr/bin/env python3
"""Survivors of a fault keep their process (docs/PROTOCOL.md, R3): workers that ask their agent for the end of their
generation go on in the next one; others are started anew, as ever."""

import glob
import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402
from etcd import EtcdCluster, etcd_is_there  # noqa: E402
from timeline import ends_within, state_of  # noqa: E402

WORKER = os.path.join(os.path.dirname(DDPRUN), "..", "tests", "rejoin_worker")


def is_alive(pid):
    return state_of(pid) not in (None, "Z", "X")


class RejoinTestCase(BedTestCase):
    def start(self, *wishes, nproc=2, options=()):
        agent = self.bed.run("ddprun", ["--nproc_per_node", nproc, "--max_restarts", 3, *options, "--event_log",
                                        self.bed.events.path, "--no_python", WORKER, self.bed.journal.path, *wishes])
        return agent, self.bed.workers(1, nproc, alive=[agent])

    def ready(self, count, generation=1):
        """Waits until so many workers of the generation have asked for its end."""
        self.bed.event("worker_can_rejoin", count=count, generation=generation)

    def kill(self, line):
        os.kill(line["pid"], signal.SIGKILL)

    def end(self, agent, lines):
        self.bed.finish(lines)
        self.assert_status(0, agent)


class Survivors(RejoinTestCase):
    def test_one_keeps_its_process_and_its_rank(self):
        agent, first = self.start()
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["pid"], second[0]["pid"])
        self.assertNotEqual(first[1]["pid"], second[1]["pid"])
        self.assertEqual([(0, 2, 1), (1, 2, 1)], [(s["rank"], s["world"], s["restart_count"]) for s in second])
        over = self.bed.journal.find("over")
        self.assertEqual([(first[0]["pid"], 1)], [(line["pid"], line["generation"]) for line in over])
        self.assertIn("killed by SIGKILL", over[0]["why"])
        kept = self.bed.event("worker_kept", generation="2")
        self.assertEqual(("0", str(first[0]["pid"])), (kept["local_rank"], kept["worker_pid"]))
        self.assertIn(f"rank 0 (pid {first[0]['pid']}) goes on without a restart", agent.text())
        self.end(agent, second)

    def test_twin_without_the_call_both_are_started_anew(self):
        agent, first = self.start("plain")
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertFalse({line["pid"] for line in first} & {line["pid"] for line in second})
        self.end(agent, second)

    def test_again_and_again(self):
        """Each keeps its process until it is killed itself."""
        agent, lines = self.start()
        self.ready(2)
        for generation, victim in ((1, 0), (2, 1), (3, 0)):
            self.kill(lines[victim])
            following = self.bed.workers(generation + 1, 2, alive=[agent])
            self.assertEqual(lines[1 - victim]["pid"], following[1 - victim]["pid"])
            self.assertNotEqual(lines[victim]["pid"], following[victim]["pid"])
            self.ready(1, generation + 1)
            lines = following
        self.end(agent, lines)

    def test_children_of_a_survivor_live_on(self):
        agent, first = self.start("child", options=["--leftovers", "kill"])
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["child"], second[0]["child"])
        self.assertTrue(is_alive(first[0]["child"]))
        self.assertFalse(is_alive(first[1]["child"]))
        self.end(agent, second)

    def test_of_a_hang_too(self):
        agent, first = self.start(options=["--on_stopped", "restart"])
        self.ready(2)
        os.kill(first[1]["pid"], signal.SIGSTOP)
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual([True, False], [a["pid"] == b["pid"] for a, b in zip(first, second)])
        self.end(agent, second)

    def test_beside_plain_workers(self):
        """Those are stopped and started anew, in the same generation."""
        agent, first = self.start("plain=1", nproc=3)
        self.ready(2)
        self.kill(first[2])
        second = self.bed.workers(2, 3, alive=[agent])
        self.assertEqual([True, False, False], [a["pid"] == b["pid"] for a, b in zip(first, second)])
        self.bed.event("worker_kept")
        self.end(agent, second)
        self.assertEqual(1, len(self.bed.events.find("worker_kept")))

    def test_output_goes_on_where_it_went(self):
        folder = self.bed.path("logs")
        agent, first = self.start(options=["--tee", 3, "--log_dir", folder])
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.end(agent, second)
        self.assertEqual(1, len(re.findall(r"default0\]:rank 0 in generation 2$", agent.text(), re.MULTILINE)))
        files = glob.glob(os.path.join(folder, "*", "attempt_0", "0", "stdout.log"))
        self.assertEqual(1, len(files), os.listdir(folder))
        with open(files[0], encoding="utf-8") as source:
            self.assertEqual("rank 0 in generation 1\nrank 0 in generation 2\n", source.read())

    def test_who_does_not_let_go_is_started_anew(self):
        agent, first = self.start("stubborn")
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertFalse({line["pid"] for line in first} & {line["pid"] for line in second})
        late = self.bed.event("let_go_late", generation="1")
        self.assertEqual((str(first[0]["pid"]), "killed"), (late["worker_pid"], late["then"]))
        self.assertIn("has not let go of generation 1 within 5s: it is killed and started anew", agent.text())
        self.end(agent, second)


class SeveralNodes(RejoinTestCase):
    """Nodes on one machine's loopback."""

    def start_nodes(self, count, nnodes, rendezvous, *wishes, nproc=2):
        """Params: rendezvous: the options of node i. Returns: agents, and the first generation's workers."""
        agents = [self.bed.run(f"node{i}", ["--nnodes", nnodes, "--nproc_per_node", nproc, "--max_restarts", 3, "--local_addr",
                                            "127.0.0.1", *rendezvous(i), "--event_log", self.bed.events.path, "--no_python",
                                            WORKER, self.bed.journal.path, *wishes]) for i in range(count)]
        return agents, self.bed.workers(1, count * nproc, alive=agents)

    def all_are_told(self, count):
        """Waits until so many workers know that their generation is over."""
        self.bed.wait(lambda: len(self.bed.journal.find("over")) == count, f"{count} workers hear of the end")

    def end_all(self, agents, lines):
        self.bed.finish(lines)
        for agent in agents:
            self.assert_status(0, agent)

    def same_process(self, first, second):
        return [before["pid"] == after["pid"] for before, after in zip(first, second)]


class OneService(SeveralNodes):
    """The service is a child of node 0's agent, which starts it again."""

    def start_two(self, *wishes):
        endpoint = f"127.0.0.1:{free_port()}"
        return self.start_nodes(2, 2, lambda i: ["--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_conf",
                                                 f"is_host={int(i == 0)}"], *wishes)

    def kill_service(self):
        """Returns when."""
        started = self.bed.event("service_started")
        killed = time.monotonic()
        os.kill(started["service_pid"], signal.SIGKILL)
        return killed

    def test_all_others_keep_process_and_rank(self):
        agents, first = self.start_two()
        self.ready(4)
        self.kill(first[3])
        second = self.bed.workers(2, 4, alive=agents)
        self.assertEqual([True, True, True, False], self.same_process(first, second))
        self.end_all(agents, second)

    def test_the_service_dies_before_all_have_let_go(self):
        """One doesn't until it is killed for that: until then there is no next generation."""
        agents, first = self.start_two("stubborn=3")
        self.ready(4)
        self.kill(first[0])
        self.all_are_told(3)
        killed = self.kill_service()
        self.bed.event("let_go_late", after=killed, alive=agents)
        second = self.bed.workers(2, 4, alive=agents)
        self.assertEqual([False, True, True, False], self.same_process(first, second))
        self.assertEqual([(rank, 4, 1) for rank in range(4)], [(s["rank"], s["world"], s["restart_count"]) for s in second])
        self.assertEqual([], self.bed.events.find("node_lost"))
        self.end_all(agents, second)

    def test_the_service_dies_while_they_train(self):
        """The new service learns nothing of the waiting workers, and needs nothing: they release the generation that it ends."""
        agents, first = self.start_two()
        self.ready(4)
        self.bed.event("service_restarted", after=self.kill_service(), alive=agents)
        self.kill(first[0])
        second = self.bed.workers(2, 4, alive=agents)
        self.assertEqual([False, True, True, True], self.same_process(first, second))
        self.end_all(agents, second)

    def test_twin_without_the_call_all_are_started_anew(self):
        agents, first = self.start_two("plain")
        self.kill(first[0])
        self.kill_service()
        second = self.bed.workers(2, 4, alive=agents)
        self.assertEqual([False] * 4, self.same_process(first, second))
        self.end_all(agents, second)


@unittest.skipUnless(etcd_is_there(), "there is no etcd here (Debian's etcd-server and etcd-client)")
class StandbyService(SeveralNodes):
    """Any node can have the service: another one's takes over."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.etcd = EtcdCluster()
        cls.addClassCleanup(cls.etcd.stop)

    def start_three(self, *wishes, nproc=1):
        options = ["--rdzv_backend", "etcd", "--rdzv_endpoint", self.etcd.endpoints, "--rdzv_id", f"rejoin{self.bed.tag}"]
        return self.start_nodes(3, "2:3", lambda _: options, *wishes, nproc=nproc)

    def lose_service(self, agents, with_node):
        """Kills the newest service; with_node: and its agent, with which its workers go. Returns: the agents that are left."""
        started = self.bed.event("service_started", alive=agents)
        self.assertEqual(1, len(self.bed.events.find("service_started")), "there was one so far")
        killed = time.monotonic()
        left = agents
        if with_node:
            host = next(agent for agent in agents if agent.pid == started["pid"])
            host.signal(signal.SIGKILL)
            left = [agent for agent in agents if agent is not host]
        try:
            os.kill(started["service_pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended with its agent
        self.bed.event("recovered", after=killed, alive=left)
        return left

    def test_the_service_is_taken_over_before_all_have_let_go(self):
        agents, first = self.start_three("stubborn=2")
        self.ready(3)
        self.kill(first[0])
        self.all_are_told(2)
        self.lose_service(agents, with_node=False)
        second = self.bed.workers(2, 3, alive=agents)
        self.assertEqual([False, True, False], self.same_process(first, second))
        self.end_all(agents, second)

    def check_node_lost(self, *wishes):
        """The processes that are in the first and in the second generation."""
        agents, first = self.start_three(*wishes)
        if not wishes:
            self.ready(3)
        left = self.lose_service(agents, with_node=True)
        second = self.bed.workers(2, 2, alive=left)
        self.end_all(left, second)
        return {line["pid"] for line in first} & {line["pid"] for line in second}

    def test_the_node_that_had_the_service_is_lost(self):
        """The job shrinks to the other nodes; their workers go on."""
        self.assertEqual(2, len(self.check_node_lost()))

    def test_twin_without_the_call_these_are_started_anew(self):
        self.assertEqual(set(), self.check_node_lost("plain"))


class Ends(RejoinTestCase):
    def test_a_job_that_failed_leaves_nobody(self):
        agent, first = self.start(options=["--max_restarts", 0])
        self.ready(2)
        self.kill(first[1])
        self.assert_status(1, agent)
        self.assertFalse(is_alive(first[0]["pid"]))

    def test_nor_does_one_that_is_stopped(self):
        agent, first = self.start()
        self.ready(2)
        agent.signal(signal.SIGINT)
        agent.wait(60)
        self.assertFalse(any(is_alive(line["pid"]) for line in first))

    def test_nor_does_an_agent_that_is_killed(self):
        agent, first = self.start()
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        agent.signal(signal.SIGKILL)
        for line in second:
            self.assertTrue(ends_within(line["pid"], 5 * SLOW), line)
        self.assertEqual(first[0]["pid"], second[0]["pid"])


if __name__ == "__main__":
    unittest.main()
