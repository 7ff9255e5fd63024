#!/usr/bin/env python3
"""`ddprun daemon`: interpreters that outlive a job, and become the next one's workers."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, TORCH_PYTHON, WORKER, torch_is_there  # noqa: E402
from timeline import ends_within, leftovers, parent_of  # noqa: E402
from warm_case import TRAINING, WarmTestCase  # noqa: E402

NOBODY = 65534


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
        return comm.read().strip()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
        return [int(child) for child in children.read().split()]


class DaemonTestCase(WarmTestCase):
    def setUp(self):
        super().setUp()
        self.runtime = self.bed.path("run")
        os.mkdir(self.runtime, 0o700)
        self.bed.environment["XDG_RUNTIME_DIR"] = self.runtime
        self.bed.environment.pop("DDPRUN_DAEMON_DIR")  # which keeps other tests' jobs from a developer's daemon
        self.folder = os.path.join(self.runtime, "ddprun-daemon")
        self.jobs = 0

    def start_daemon(self, *options):
        self.daemon = self.bed.run("daemon", ["daemon", *options])
        self.told("keeps interpreters ready")
        return self.daemon

    def told(self, text, count=1, **options):
        return self.bed.wait(lambda: self.daemon.text().count(text) >= count, f"the daemon's {text!r}", **options)

    def job(self, *options, modules="decimal", nproc=2, env=None):
        """Starts a job; returns its agent and its workers, which wait."""
        self.jobs += 1
        began = time.monotonic()
        words = ["--preload", modules] if modules else []
        agent = self.bed.agent(f"job{self.jobs}", ["--standalone", "--nproc_per_node", nproc, "--max_restarts", 9, *words,
                                                   *options], env=env)
        lines = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", began)) == nproc and found, "all workers",
                              alive=[agent])
        self.began = began
        return agent, sorted(lines, key=lambda line: line["rank"])

    def end(self, agent, lines):
        self.bed.finish(lines)
        self.assert_status(0, agent)

    def visit(self):
        """What came of asking the daemon for the job that was started last; None: nobody asked."""
        self.bed.follower.refresh()
        visits = self.bed.events.find("warm_daemon", self.began)
        return visits[0] if visits else None

    def assert_warm(self, count):
        """So many workers of the last job started warm. Workers write their lines before their agent has noted their start."""
        found = self.bed.wait(lambda: len(lines := self.bed.events.find("worker_started", self.began)) >= count and lines,
                              f"{count} workers")
        self.assertEqual([True] * count, [line.get("warm") for line in found])

    def prepare(self, *options, **more):
        """A job that has come and gone, and its interpreter that waits."""
        self.end(*self.job(*options, **more))
        self.told("is ready")

    def keeper(self):
        return self.bed.events.find("agent_start", self.began)[0]["keeper"]

    def spare(self):
        """The warden, the keeper and the interpreter that wait."""
        warden = next(pid for pid in children_of(self.daemon.pid) if name_of(pid) == "ddprun-warden")
        keeper, = children_of(warden)
        interpreter, = children_of(keeper)
        return [warden, keeper, interpreter]

    def assert_end(self, pidfds):
        for pidfd in pidfds:
            ended, _, _ = select.select([pidfd], [], [], 5 * SLOW)
            os.close(pidfd)
            self.assertTrue(ended)

    def ask(self, word):
        return subprocess.run([DDPRUN, "daemon", word], env=self.bed.environment, capture_output=True, text=True, check=False)


class Leases(DaemonTestCase):
    """Jobs that begin with an interpreter that is there."""

    def test_the_second_job_is_forked_from_it(self):
        self.start_daemon()
        agent, lines = self.job()
        self.assertEqual(["False", "this is its first run"], [str(self.visit()["leased"]), self.visit()["why_not"]])
        self.assertEqual(agent.pid, parent_of(self.keeper()))
        self.end(agent, lines)
        self.told("is ready")
        spare = self.spare()
        self.assertRegex(self.ask("status").stdout, r"worker\.py +ready ")
        agent, lines = self.job()
        self.assertTrue(self.visit()["leased"])
        self.assertEqual(spare[1], self.keeper())
        self.assertEqual(spare[:1] * 2, [parent_of(self.keeper()), parent_of(parent_of(lines[0]["pid"]))])
        for line in lines:
            self.assertEqual(spare[1], parent_of(line["pid"]))
        self.assert_warm(2)
        self.bed.event("warm_start", self.began, warm=2, cold=0)
        self.told("is ready", 2)  # the next one, beside the job
        self.end(agent, lines)
        self.assertTrue(ends_within(spare[0], 5 * SLOW), "the warden")
        for _ in range(2):  # the first one's answer may come from the round of events that its end is in
            self.ask("status")
        self.assertFalse(os.path.exists(f"/proc/{spare[0]}"), "the daemon has reaped it")

    def test_twin_without_a_daemon(self):
        agent, lines = self.job(modules="")
        self.assertIsNone(self.visit())
        self.assertEqual(agent.pid, parent_of(self.keeper()))
        self.assertEqual([None, None], self.starts(1))
        self.end(agent, lines)

    def test_the_folder_can_be_named(self):
        """DDPRUN_DAEMON_DIR; a job that names another one, as all tests do, doesn't meet this daemon."""
        elsewhere = self.bed.path("elsewhere")
        self.bed.environment["DDPRUN_DAEMON_DIR"] = elsewhere
        self.start_daemon()
        self.assertTrue(os.path.exists(os.path.join(elsewhere, "socket")))
        self.assertFalse(os.path.exists(self.folder))
        for folder, status in ((elsewhere, 0), (self.bed.path("no-daemon"), 1)):
            self.assertEqual(status, subprocess.run(
                [DDPRUN, "daemon", "status"], env={**self.bed.environment, "DDPRUN_DAEMON_DIR": folder},
                capture_output=True, check=False).returncode, folder)

    def test_who_wants_no_warm_start_asks_nobody(self):
        self.start_daemon()
        agent, lines = self.job("--warm", "off")
        self.assertIsNone(self.visit())
        self.end(agent, lines)

    def test_restarts_are_forked_from_it_too(self):
        self.start_daemon()
        self.prepare()
        agent, lines = self.job()
        os.kill(lines[-1]["pid"], signal.SIGKILL)
        anew = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", self.began, generation=2)) == 2 and found,
                             "the next generation", alive=[agent])
        self.assertEqual([self.keeper()] * 2, [parent_of(line["pid"]) for line in anew])
        self.assert_warm(4)
        self.end(agent, anew)

    def test_a_worker_sees_no_difference(self):
        cold = self.observe("cold", "--warm", "off")
        self.start_daemon()
        self.observe("warm", "--preload", "decimal,logging")
        self.told("is ready")
        os.remove(self.bed.path("warm.jsonl"))  # the same arguments again
        self.began = time.monotonic()
        warm = self.observe("warm", "--preload", "decimal,logging")
        self.assertTrue(self.visit()["leased"])
        for one, other in zip(cold, warm):
            for what, seen in one.items():
                self.assertEqual(seen, other[what], what)

    def test_a_worker_reads_what_the_agent_would(self):
        script = self.bed.write("read.py", "import sys\nprint('read', sys.stdin.readline().strip(), sys.stdin.buffer.name)\n")
        self.start_daemon()
        for name in ("first", "second"):
            self.began = time.monotonic()
            with open(self.bed.write(name + ".in", f"what is in {name}\n"), "rb") as source:
                agent = self.bed.run(name, ["--standalone", "--preload", "decimal", "--event_log", self.bed.events.path, script],
                                     stdin=source)
            self.assert_status(0, agent)
            self.assertIn(f"read what is in {name} <stdin>", agent.text())
            if name == "first":
                self.told("is ready")
        self.assertTrue(self.visit()["leased"])

    def test_steps_are_counted_by_the_hook_of_this_job(self):
        script = self.bed.write("hook.py", "import os, sys\n"
                                "print([type(finder).__name__ for finder in sys.meta_path], sorted(os.environ), sys.path)\n")
        self.start_daemon()
        for name, options, counts in (("first", (), True), ("second", (), True), ("third", ("--mark", "off"), False)):
            self.began = time.monotonic()
            agent = self.bed.run(name, ["--standalone", "--preload", "decimal", "--event_log", self.bed.events.path, *options,
                                        script])
            self.assert_status(0, agent)
            self.assertEqual(name != "first", self.visit()["leased"])
            self.assertEqual(counts, "'_Steps'" in agent.text(), name)
            for trace in ("DDPRUN_MARK", "/marks'"):
                self.assertNotIn(trace, agent.text())
            self.told("is ready", self.jobs + 1)
            self.jobs += 1

    @unittest.skipUnless(torch_is_there(), "torch is not installed")
    def test_what_a_job_has_learned(self):
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON
        script = self.bed.write("train.py", TRAINING)
        self.start_daemon()
        for leased in (False, True):
            began = self.began = time.monotonic()
            agent = self.bed.run(f"job{leased}", ["--standalone", "--event_log", self.bed.events.path, script,
                                                  self.bed.journal.path])
            lines = self.bed.wait(lambda: self.bed.journal.find("worker", began), "a worker", alive=[agent])
            self.assertEqual(leased, self.visit()["leased"])
            self.end(agent, lines)
            if not leased:
                self.told("is ready")
        self.assertGreater(int(self.bed.event("warm_start", self.began)["saved_ms"]), 100)


class Differences(DaemonTestCase):
    """Only a job with the same of everything gets it."""

    def check_cold(self, why, *options, **more):
        agent, lines = self.job(*options, **more)
        self.assertFalse(self.visit()["leased"])
        self.assertIn(f"workers start without the interpreter of ddprun daemon: {why}", agent.text())
        self.end(agent, lines)

    def test_variables(self):
        self.start_daemon()
        self.prepare(env={"OMP_NUM_THREADS": "1"})
        self.check_cold("variable OMP_NUM_THREADS has changed", env={"OMP_NUM_THREADS": "3"})
        # Each shell has its own of these.
        agent, lines = self.job(env={"OMP_NUM_THREADS": "1", "SHLVL": "7", "TMUX_PANE": "%3"})
        self.assertTrue(self.visit()["leased"])
        with open(f"/proc/{lines[0]['pid']}/environ", encoding="utf-8") as block:
            self.assertIn("TMUX_PANE=%3", block.read().split("\0"))
        self.end(agent, lines)

    def test_a_variable_whose_value_is_secret_is_not_shown(self):
        self.start_daemon()
        self.prepare(env={"SOME_TOKEN": "hidden-one"})
        agent, lines = self.job(env={"SOME_TOKEN": "hidden-other"})
        self.assertIn("SOME_TOKEN", agent.text())
        self.assertNotIn("hidden", agent.text() + self.daemon.text() + self.ask("status").stdout)
        self.end(agent, lines)

    def test_limits(self):
        self.start_daemon()
        self.prepare()
        self.jobs += 1
        began = self.began = time.monotonic()
        words = ["--standalone", "--nproc_per_node", "2", "--max_restarts", "9", "--preload", "decimal"]
        agent = self.bed.start_process(
            "limited", ["sh", "-c", "ulimit -n 200 && exec \"$@\"", "sh", DDPRUN, *words, "--event_log", self.bed.events.path,
                        WORKER, self.bed.journal.path, "wait"],
            env=self.bed.environment, output=self.bed.path("limited.out"))
        lines = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", began)) == 2 and found, "all workers",
                              alive=[agent])
        self.assertIn("the limit of open files is '200 of 200'", agent.text())
        with open(f"/proc/{lines[0]['pid']}/limits", encoding="ascii") as limits:
            self.assertRegex(limits.read(), r"Max open files +200 ")
        self.end(agent, lines)

    def test_a_module_that_was_changed_since(self):
        self.module("edited", "VALUE = 'before'\n")
        script = self.bed.write("show.py", "import edited\nprint('it is', edited.VALUE)\n")
        self.start_daemon()

        def run(name):
            self.began = time.monotonic()
            agent = self.bed.run(name, ["--standalone", "--preload", "edited", "--event_log", self.bed.events.path, script])
            self.assert_status(0, agent)
            return agent.text()

        self.assertIn("it is before", run("first"))
        self.told("is ready")
        self.assertIn("it is before", run("second"))
        self.assertTrue(self.visit()["leased"])
        self.told("is ready", 2)
        self.module("edited", "VALUE = 'after all'\n")
        self.assertIn("it is after all", run("third"))
        self.assertTrue(self.visit()["leased"])  # it looked when it was asked to become a worker
        self.bed.event("warm_old", self.began)


class Ends(DaemonTestCase):
    """Whichever process ends, no process is left behind, and jobs go on."""

    def test_the_daemon_is_killed_while_a_job_runs(self):
        self.start_daemon()
        self.prepare()
        agent, lines = self.job()
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait(5 * SLOW)
        os.kill(lines[-1]["pid"], signal.SIGKILL)
        anew = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", self.began, generation=2)) == 2 and found,
                             "the next generation", alive=[agent])
        self.end(agent, anew)
        self.assertEqual({}, leftovers(self.bed.tag, 5 * SLOW))

    def test_the_daemon_is_killed_with_an_interpreter_that_waits(self):
        self.start_daemon()
        self.prepare()
        waiting = [os.pidfd_open(pid) for pid in self.spare()]
        self.daemon.signal(signal.SIGKILL)
        self.assert_end(waiting)
        self.end(*self.job())  # as without one
        self.assertIsNone(self.visit())
        self.start_daemon()  # what the killed one left is in nobody's way

    def test_the_agent_is_killed(self):
        self.start_daemon()
        self.prepare()
        agent, lines = self.job()
        keeper = self.keeper()
        fds = [os.pidfd_open(pid) for pid in (*[line["pid"] for line in lines], keeper, parent_of(keeper))]
        agent.signal(signal.SIGKILL)
        self.assert_end(fds)

    def test_the_keeper_is_killed(self):
        self.start_daemon()
        script = self.bed.write("family.py", "import os, subprocess, sys\n"
                                "subprocess.Popen(['setsid', 'sleep', '1000'])\nexec(open(sys.argv.pop(1)).read())\n")
        started = []
        for name in ("first", "second"):
            self.began = time.monotonic()
            agent = self.bed.run(name, ["--standalone", "--leftovers", "kill", "--preload", "decimal", "--event_log",
                                        self.bed.events.path, script, WORKER, self.bed.journal.path])
            started = self.bed.wait(lambda: self.bed.journal.find("worker", self.began), "a worker", alive=[agent])
            if name == "first":
                self.end(agent, started)
                self.told("is ready")
        self.assertTrue(self.visit()["leased"])
        child, = children_of(started[0]["pid"])
        fds = [os.pidfd_open(pid) for pid in (child, started[0]["pid"], parent_of(self.keeper()))]
        os.kill(self.keeper(), signal.SIGKILL)
        self.assert_end(fds)
        self.assertNotEqual(0, agent.wait(10 * SLOW))
        self.assertIn("the keeper process", agent.text())

    def test_stop(self):
        self.start_daemon()
        self.prepare()
        agent, lines = self.job()
        self.told("is ready", 2)
        self.assertEqual(0, self.ask("stop").returncode)
        self.assert_status(0, self.daemon)
        self.end(agent, lines)
        asked = self.ask("status")
        self.assertEqual(1, asked.returncode)
        self.assertIn("no daemon of yours runs on this machine", asked.stderr)

    def test_there_is_one(self):
        self.start_daemon()
        second = self.bed.run("second", ["daemon"])
        self.assert_status(1, second)
        self.assertIn(f"runs already on this machine (pid {self.daemon.pid})", second.text())


class Bounds(DaemonTestCase):
    def test_nobody_uses_it(self):
        self.start_daemon("--idle_timeout", "0.3")
        self.prepare()
        self.told("is ended: nobody has used it for the idle timeout")
        self.end(*self.job())
        self.assertFalse(self.visit()["leased"])

    def test_it_holds_too_much(self):
        self.start_daemon("--memory", "1MiB")
        self.end(*self.job())
        self.told("and --memory allows all together 1.0 MiB")
        self.end(*self.job())
        self.assertFalse(self.visit()["leased"])
        self.assertIn("it holds", self.visit()["why_not"])

    def test_bad_options(self):
        for words in (["--memory", "much"], ["--idle_timeout", "soon"], ["start"]):
            run = self.bed.run(words[-1], ["daemon", *words])
            self.assertIn(run.wait(5 * SLOW), (1, 2))
            self.assertIn(words[-1], run.text())


class Strangers(DaemonTestCase):
    """Nothing of one user is reachable by another."""

    def test_its_folder_is_the_users_alone(self):
        self.start_daemon()
        self.assertEqual(0o700, os.stat(self.folder).st_mode & 0o777)
        self.assertEqual(0o600, os.stat(os.path.join(self.folder, "socket")).st_mode & 0o777 & ~0o100)

    def test_a_folder_that_is_open_to_others_is_refused(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        daemon = self.bed.run("daemon", ["daemon"])
        self.assert_status(1, daemon)
        self.assertIn("is not a folder of yours that nobody else may enter", daemon.text())

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_another_user_is_refused(self):
        self.start_daemon()
        for path, mode in ((self.bed.folder, 0o711), (self.runtime, 0o711), (self.folder, 0o711),
                           (os.path.join(self.folder, "socket"), 0o777)):
            os.chmod(path, mode)
        heard, ours = socket.socketpair()
        child = os.fork()
        if child == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
                asking.connect(os.path.join(self.folder, "socket"))
                ours.send(b"end" if asking.recv(100) == b"" else b"answer")
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(b"end", heard.recv(100))
        heard.close()
        ours.close()
        self.told(f"refused: the process at the other end is user {NOBODY}'s")
        os.chmod(self.folder, 0o700)
        self.assertEqual(0, self.ask("status").returncode)  # negative control: the same user isn't

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_another_users_daemon_is_not_asked(self):
        os.mkdir(self.folder, 0o700)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(os.path.join(self.folder, "socket"))
        child = os.fork()
        if child == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            listener.listen(4)  # SO_PEERCRED of the other end names the process that called listen()
            os.kill(os.getpid(), signal.SIGSTOP)
            asking, _ = listener.accept()
            os._exit(1 if asking.recv(100) else 0)
        os.waitpid(child, os.WUNTRACED)
        agent, lines = self.job()
        self.assertIn(f"the process at the other end is user {NOBODY}'s", agent.text())
        self.end(agent, lines)
        os.kill(child, signal.SIGCONT)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        listener.close()


if __name__ == "__main__":
    unittest.main()
