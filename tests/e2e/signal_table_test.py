#!/usr/bin/env python3
"""Each cell of the tables in docs/SIGNALS.md that tests/e2e/signals_test.py has not."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, WORKER, BedTestCase, free_port  # noqa: E402
from timeline import leftovers  # noqa: E402

BOUND = 1 * SLOW
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN)


class TableTestCase(BedTestCase):
    def elastic(self, port, *options, nnodes="2"):
        return ["--nnodes", nnodes, "--rdzv_endpoint", f"127.0.0.1:{port}", *options]

    def ends(self, agent, number, status):
        agent.signal(number)
        self.assert_status(status, agent, BOUND)

    def got(self, number, count, alive=()):
        """The journal's lines of `count` workers that got this signal."""
        return self.bed.wait(
            lambda: (lines := self.bed.journal.find("got", signal=number)) and len(lines) >= count and lines,
            f"{count} workers with signal {number}", alive=alive)


    def forget(self):
        """The journal and the events of the job before."""
        self.bed.follower.refresh()
        self.bed.events.lines.clear()
        self.bed.journal.lines.clear()


class OneNode(TableTestCase):
    def starting(self, name):
        """An agent whose service does not answer yet."""
        agent = self.bed.agent(name, self.elastic(free_port(), "--rdzv_conf", "is_host=0"))
        self.bed.event("agent_start", after=agent.started, alive=[agent])
        return agent

    def waiting(self, name):
        agent = self.bed.agent(name, self.elastic(free_port()))
        self.bed.event("node_joined", after=agent.started, alive=[agent])
        return agent

    def running(self, name, *options, worker=("log-signals",), **more):
        self.forget()
        agent = self.bed.agent(name, ["--nproc_per_node", 2, *options], worker, **more)
        workers = self.bed.next_workers(0, 2, 2, alive=[agent])
        # All are known to the supervisor before a signal comes.
        self.bed.event("started", after=agent.started, alive=[agent])
        return agent, workers

    def restarting(self, name, *options):
        """One worker failed, the other one ignores TERM: the round closes, the grace runs."""
        agent, workers = self.running(name, "--max_restarts", 1, *options, worker=("ignore-term", "wait"))
        self.bed.signal_workers(workers[:1], signal.SIGUSR2)
        self.bed.event("stop_begin", after=agent.started, alive=[agent])
        return agent, workers

    def test_ending_signals_before_workers(self):
        for number in ENDING:
            for state in (self.starting, self.waiting):
                with self.subTest(number=number, state=state.__name__):
                    self.ends(state(f"{state.__name__}{number}"), number, 128 + number)

    def test_passed_on_signals_before_workers_do_nothing(self):
        for state in (self.starting, self.waiting):
            agent = state(state.__name__)
            for number in PASSED_ON:
                agent.signal(number)
            # Had one of them ended the agent, that would be its status.
            self.ends(agent, signal.SIGTERM, 143)

    def test_ending_signals_while_running_reach_every_worker_as_they_are(self):
        for number in ENDING:
            with self.subTest(number=number):
                agent, _ = self.running(f"running{number}")
                self.ends(agent, number, 1)
                self.assertEqual({0, 1}, {line["rank"] for line in self.got(number, 2)})

    def test_passed_on_signals_while_running(self):
        agent, _ = self.running("running")
        for number in PASSED_ON:
            agent.signal(number)
            self.got(number, 2, alive=[agent])
        self.ends(agent, signal.SIGTERM, 1)

    def test_a_signal_to_the_whole_process_group_spares_the_service(self):
        agent = self.bed.run("group", ["--nproc_per_node", 2, "--event_log", self.bed.events.path,
                                       WORKER, self.bed.journal.path, "log-signals"], start_new_session=True)
        self.bed.workers(1, 2, alive=[agent])
        os.killpg(agent.pid, signal.SIGUSR1)
        self.got(signal.SIGUSR1, 2, alive=[agent])
        self.assertEqual([], self.bed.events.find("service_exited"))
        self.ends(agent, signal.SIGTERM, 1)

    def test_the_option_says_what_ends_and_what_is_not_listed_kills_the_agent(self):
        # log-signals goes on after USR1, so the grace ends it.
        listed = ("--signals_to_handle", "SIGUSR1,BOGUS,SIGTERM", "--grace", "100ms")
        agent, _ = self.running("listed", *listed)
        self.ends(agent, signal.SIGUSR1, 1)
        self.got(signal.SIGUSR1, 2)
        self.assertIn("'BOGUS' is no signal", agent.text())
        agent, _ = self.running("unlisted", *listed)
        self.ends(agent, signal.SIGINT, -signal.SIGINT)
        self.assertEqual({}, leftovers(self.bed.tag, BOUND))
        self.assertEqual([], self.bed.journal.find("got"))

    def test_ending_signals_while_restarting_wait_for_the_grace_and_a_second_one_does_not(self):
        for number in ENDING:
            with self.subTest(number=number):
                agent, workers = self.restarting(f"restarting{number}")
                agent.signal(number)
                self.bed.event("signal", after=agent.started, alive=[agent])
                os.kill(workers[1]["pid"], 0)  # it has its 30 s
                self.ends(agent, next(other for other in ENDING if other != number), 1)

    def test_an_ending_signal_while_restarting_prevents_the_restart(self):
        agent, _ = self.restarting("restarting", "--grace", "100ms")
        self.ends(agent, signal.SIGTERM, 1)
        self.assertEqual([], self.bed.journal.find("worker", generation=2))

    def test_passed_on_signals_while_restarting_are_dropped(self):
        agent, workers = self.restarting("restarting")
        agent.signal(signal.SIGUSR2)  # would be the end of the worker that still runs
        # Any thread of the agent may get it, and one that is not scheduled yet hands it on late.
        self.assertEqual("dropped", self.bed.event("signal", after=agent.started, alive=[agent])["action"])
        self.bed.signal_workers(workers[1:], signal.SIGKILL)
        self.bed.finish(self.bed.workers(2, 2, alive=[agent]))
        self.assert_status(0, agent)

    def test_the_grace_is_as_asked_for_on_a_signal_and_on_a_failure(self):
        for name, options in (("signal", ()), ("failure", ("--max_restarts", 0))):
            agent, workers = self.running(name, "--grace", "200ms", *options, worker=("ignore-term", "wait"))
            began = time.monotonic()  # and not when the agent says so, which it may be held up before
            if name == "signal":
                agent.signal(signal.SIGTERM)
            else:
                self.bed.signal_workers(workers[:1], signal.SIGUSR2)
            self.assert_status(1, agent, 2 * BOUND)
            ended = self.bed.event("worker_exit", after=began, signal=int(signal.SIGKILL))
            self.assertGreaterEqual(ended["t"] - began, 0.2)

    def test_a_hangup_that_was_ignored_stays_ignored(self):
        agent = self.bed.run(
            "nohup", ["--event_log", self.bed.events.path, "--nproc_per_node", 2,
                      WORKER, self.bed.journal.path, "log-signals"],
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.bed.workers(1, 2, alive=[agent])
        agent.signal(signal.SIGHUP)
        agent.signal(signal.SIGUSR1)
        self.got(signal.SIGUSR1, 2, alive=[agent])
        self.assertEqual([], self.bed.journal.find("got", signal=signal.SIGHUP))
        self.ends(agent, signal.SIGTERM, 1)

    def test_the_exit_status_is_the_workers_when_asked_for(self):
        for options, worker, status in ((["--exit_code", "worker"], ["exit=7"], 7),
                                        (["--exit_code", "worker"], ["die=SIGKILL"], 137),
                                        (["--exit_code", "1"], ["exit=7"], 1),
                                        ([], ["exit=7"], 1)):
            agent = self.bed.agent(f"status{status}", options, worker)
            self.assert_status(status, agent)


class ManyNodes(TableTestCase):
    def two(self, nnodes, *options):
        """A host and another node, both with one worker that runs."""
        port = free_port()
        host = self.bed.agent("host", self.elastic(port, "--rdzv_conf", "is_host=1,last_call_timeout=20", *options,
                                                   nnodes=nnodes), ("log-signals",))
        other = self.bed.agent("other", self.elastic(port, "--rdzv_conf", "is_host=0,last_call_timeout=20", *options,
                                                     nnodes=nnodes), ("log-signals",))
        self.bed.next_workers(0, 2, 2, alive=[host, other])
        self.bed.event("started", generation=1, alive=[host, other])
        return host, other, port

    def test_ctrl_c_on_any_node_ends_the_job(self):
        for nnodes in ("2", "1:2"):
            for on_host in (True, False):
                with self.subTest(nnodes=nnodes, on_host=on_host):
                    self.forget()
                    host, other, _ = self.two(nnodes)
                    (host if on_host else other).signal(signal.SIGINT)
                    self.assert_status(1, host, 3 * BOUND)
                    self.assert_status(1, other, 3 * BOUND)

    def test_term_on_the_host_ends_the_job(self):
        for nnodes in ("2", "1:2"):
            with self.subTest(nnodes=nnodes):
                self.forget()
                host, other, _ = self.two(nnodes)
                host.signal(signal.SIGTERM)
                self.assert_status(1, host, 3 * BOUND)
                self.assert_status(1, other, 3 * BOUND)

    def test_term_on_another_node_makes_an_elastic_job_smaller(self):
        host, other, _ = self.two("1:2")
        self.ends(other, signal.SIGTERM, 1)
        self.bed.next_workers(1, 1, 1, alive=[host])
        self.assertEqual([], self.bed.events.find("verdict"))
        self.ends(host, signal.SIGTERM, 1)

    def test_term_on_another_node_makes_a_fixed_job_wait_for_a_replacement(self):
        host, other, port = self.two("2")
        self.ends(other, signal.SIGTERM, 1)
        self.bed.event("round_closed", alive=[host])
        replacement = self.bed.agent("replacement", self.elastic(port, "--rdzv_conf", "is_host=0"), ("log-signals",))
        self.bed.next_workers(1, 2, 2, alive=[host, replacement])
        # Waiting again, and with workers behind it: an ending signal gives 1 now.
        self.ends(replacement, signal.SIGTERM, 1)
        self.bed.event("round_closed", count=2, alive=[host])
        self.ends(host, signal.SIGTERM, 1)

    def test_term_on_all_nodes_ends_all(self):
        for nnodes in ("2", "1:2"):
            with self.subTest(nnodes=nnodes):
                self.forget()
                host, other, _ = self.two(nnodes)
                host.signal(signal.SIGTERM)
                other.signal(signal.SIGTERM)
                self.assert_status(1, host, 3 * BOUND)
                self.assert_status(1, other, 3 * BOUND)
        self.assertEqual({}, leftovers(self.bed.tag, 0))

    def test_a_passed_on_signal_stays_on_its_node(self):
        host, other, _ = self.two("2")
        other.signal(signal.SIGUSR1)
        self.got(signal.SIGUSR1, 1, alive=[host, other])
        host.signal(signal.SIGINT)
        self.assert_status(1, other, 3 * BOUND)
        self.assertEqual(1, len(self.bed.journal.find("got", signal=signal.SIGUSR1)))

    def test_a_preempting_signal_ends_a_fixed_job_on_all_nodes(self):
        host, other, _ = self.two("2", "--preempt_signals", "SIGUSR1", "--grace", "100ms")
        other.signal(signal.SIGUSR1)
        self.assert_status(75, host, 3 * BOUND)
        self.assert_status(75, other, 3 * BOUND)
        self.got(signal.SIGUSR1, 1)
        self.got(signal.SIGTERM, 1)

    def test_a_preempting_signal_leaves_an_elastic_job_to_the_others_but_for_the_host(self):
        host, other, _ = self.two("1:2", "--preempt_signals", "SIGUSR1", "--grace", "100ms")
        other.signal(signal.SIGUSR1)
        self.assert_status(75, other, 3 * BOUND)
        self.got(signal.SIGUSR1, 1)
        self.bed.workers(2, 1, alive=[host])
        host.signal(signal.SIGUSR1)
        self.assert_status(75, host, 3 * BOUND)

    def test_the_exit_status_is_the_first_causes_on_every_node(self):
        port = free_port()
        worker = ("only-rank=1", "exit=9")
        host = self.bed.agent("host", self.elastic(port, "--exit_code", "worker", "--rdzv_conf", "is_host=1"), worker)
        other = self.bed.agent("other", self.elastic(port, "--exit_code", "worker", "--rdzv_conf", "is_host=0"), worker)
        self.assert_status(9, host)
        self.assert_status(9, other)


if __name__ == "__main__":
    unittest.main(verbosity=2)
