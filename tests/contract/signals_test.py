#!/usr/bin/env python3
"""Checks 66 to 72: signals to the launcher, and what is left afterwards."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, check  # noqa: E402

# Reports the first signal, and ends.
LISTEN = """listened = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, listened)
probe.tell()
probe.tell("heard", signal=signal.sigwait(listened))
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprobe.tell()\nwhile True: signal.pause()\n"


class Signals(contract.ContractCase):
    def running(self, launcher, body, *options, count=2):
        """(job, node, its workers' reports) for a running job of one node."""
        job = self.job(launcher)
        job.private = True
        node = job.start(["--nproc-per-node", count, *options, job.script(body)])
        return job, node, job.await_workers(count, alive=[node])

    def heard(self, job):
        job.follower.refresh()
        return sorted((line["rank"], line["signal"]) for line in job.journal.find("heard"))

    def each_worker_gets(self, number):
        for launcher in self.launchers():
            job, node, told = self.running(launcher, LISTEN)
            ends = [os.pidfd_open(line["pid"]) for line in told]
            node.signal(number)
            for end in ends:
                self.assertTrue(jobs.wait_readable(end, launcher.patience), "a worker lives on")
                os.close(end)
            # Bound: 0.5 s from the workers' end on an idle machine.
            ended = job.end(node, 0.5 * jobs.SLOW * (4 if job.ours else 60))
            self.assertEqual(1, ended.status, ended.err)
            self.assertEqual([(0, number), (1, number)], self.heard(job))

    @check(66, recorded=True)
    def test_66_term(self):
        self.each_worker_gets(signal.SIGTERM)

    @check(66, recorded=True)
    def test_66_int(self):
        self.each_worker_gets(signal.SIGINT)

    @check(66, recorded=True)
    def test_66_hup(self):
        self.each_worker_gets(signal.SIGHUP)

    @check(66, recorded=True)
    def test_66_quit(self):
        self.each_worker_gets(signal.SIGQUIT)

    @check(67, recorded=True, waits=True)
    def test_67_workers_that_ignore_it(self):
        for launcher in self.launchers():
            job, node, _ = self.running(launcher, IGNORE, count=1)
            node.signal(signal.SIGTERM)
            asked = time.monotonic()
            self.assertEqual(1, job.end(node, 60 * jobs.SLOW).status)
            self.assertTrue(29 <= time.monotonic() - asked <= 45 * jobs.SLOW)

    @check(68, recorded=True)
    def test_68_chosen_signals(self):
        for launcher in self.launchers():
            job, node, _ = self.running(launcher, LISTEN, "--signals-to-handle", "SIGUSR1,BOGUS,SIGTERM")
            self.assertRegex(job.text("node.stderr"), "BOGUS")
            node.signal(signal.SIGUSR1)
            self.assertEqual(1, job.end(node).status)
            self.assertEqual([(0, signal.SIGUSR1), (1, signal.SIGUSR1)], self.heard(job))

    @check(69, recorded=True, differs=Differs(17))
    def test_69_unlisted_signal(self):
        """torchrun dies of it and its workers live on; ours passes it on and the job goes on."""
        for launcher in self.launchers():
            job, node, told = self.running(launcher, "probe.wait()\n")
            node.signal(signal.SIGUSR1)
            if job.ours:  # USR1 is what lets these workers end well.
                self.assertEqual(0, job.end(node).status)
            else:
                self.assertEqual(128 + signal.SIGUSR1, job.end(node).status)
                self.assertLessEqual({line["pid"] for line in told}, set(jobs.tagged(job.tag)))

    def waiting_for_a_node(self, launcher, options, number):
        """The exit status of a launcher that gets a signal while it waits for a second node."""
        job = self.job(launcher)
        node = job.start(["--nnodes", 2, *options, job.script("")], env={"LOGLEVEL": "INFO"})
        if job.ours:
            job.say_of(node, "(?i)wait", [node])
        else:
            job.say_of(node, "Starting elastic_operator|starting workers|[Rr]endezvous'ing|run_id", [node])
        node.signal(number)
        return job.end(node, 1 * jobs.SLOW * 3 if job.ours else launcher.patience).status

    @check(70, recorded=True)
    def test_70_while_waiting(self):
        for launcher in self.launchers():
            for number in (signal.SIGTERM, signal.SIGINT):
                options = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}"]
                self.assertEqual(128 + number, self.waiting_for_a_node(launcher, options, number))

    @check(70, differs=Differs(14, why="torchrun's static rendezvous ignores Ctrl-C for up to 900 s"))
    def test_70_while_waiting_static(self):
        for launcher in self.launchers():
            for number in (signal.SIGTERM, signal.SIGINT):
                options = ["--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", jobs.free_port()]
                self.assertEqual(128 + number, self.waiting_for_a_node(launcher, options, number))

    @check(71, recorded=True, differs=Differs(18))
    def test_71_killed_launcher(self):
        for launcher in self.launchers():
            job, node, told = self.running(launcher, IGNORE)
            node.signal(signal.SIGKILL)
            self.assertEqual(128 + signal.SIGKILL, job.end(node).status)
            if job.ours:
                self.assertEqual({}, jobs.leftovers(job.tag, 1 * jobs.SLOW))
            else:
                self.assertLessEqual({line["pid"] for line in told}, set(jobs.tagged(job.tag)))

    @check(72, recorded=True, differs=Differs(18))
    def test_72_child_of_a_failed_worker(self):
        body = ("import subprocess\nchild = subprocess.Popen(['tail', '-f', '/dev/null'])\n"
                "probe.tell('child', child=child.pid)\nprobe.tell()\nsys.exit(4)\n")
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            self.assertEqual(1, job.run([job.script(body)]).status)
            child = job.journal.find("child")[0]["child"]
            self.assertEqual(not job.ours, child in jobs.tagged(job.tag))


if __name__ == "__main__":
    contract.main()
