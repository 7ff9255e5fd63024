#!/usr/bin/env python3
"""What is left of a job that is over: `ddprun status --ended`, and the counter of a `ddprun rendezvous` (docs/STATUS.md)."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import CACHE, DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402

PROMTOOL = shutil.which("promtool", path=os.path.join(CACHE, "promtool")) or shutil.which("promtool")


class EndedTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        # Commands find other tests' jobs in /tmp, too: this one's is asked for by its name.
        self.name = f"job-{os.path.basename(self.bed.folder)}"
        os.mkdir(self.bed.path("run"), 0o700)
        os.mkdir(self.bed.path("home"))
        self.bed.environment.update(TMPDIR=self.bed.path("run"), XDG_RUNTIME_DIR=self.bed.path("run"),
                                    HOME=self.bed.path("home"), XDG_STATE_HOME="")
        self.folder = self.bed.path("home/.local/state/ddprun/ended")

    def ask(self, *words, status=0):
        """What a command prints, on both streams."""
        done = subprocess.run([DDPRUN, *words], env=self.bed.environment, cwd=self.bed.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=60 * SLOW)
        self.assertEqual(status, done.returncode, done.stdout)
        return done.stdout

    def ended(self, *words):
        """The documents of the jobs that are over."""
        return json.loads(self.ask("status", "--ended", "-o", "json", *words))["ended"]

    def job(self, name, script, *options, status=0, env=None):
        """A job of one worker, to its end."""
        agent = self.start(name, script, *options, env=env)
        self.assert_status(status, agent)
        return agent

    def start(self, name, script, *options, env=None):
        options = ("--nnodes", 1, "--rdzv_id", name, *options, "--event_log", self.bed.events.path)
        return self.bed.run(name.replace("/", "-"), [*options, "--no_python", "sh", "-c", script], env=env)

    def running(self, name, *options, count=1):
        agent = self.start(name, "exec sleep 1000", *options)
        self.bed.event("worker_started", count=count, alive=[agent])
        return agent

    def files(self):
        return sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else []


class Records(EndedTestCase):
    def test_one_that_succeeded(self):
        self.job(self.name, "exit 0")
        (job,) = self.ended()
        self.assertEqual((self.name, "succeeded", 0, 0, 1), tuple(job[name] for name in (
            "run_id", "outcome", "status", "restart_count", "generation")))
        self.assertLessEqual(job["began_ms"], job["ended_ms"])
        self.assertRegex(job["ended_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        text = self.ask("status", "--ended")
        self.assertRegex(
            text, rf"^job {self.name}: succeeded [\d.]+ \w+ ago, ran for [^,]+, exit status 0, restarts 0 of 0\n  sh -c exit 0 ")
        self.assertNotIn("every rank", text)
        for path in (self.folder, os.path.join(self.folder, self.files()[0])):
            self.assertEqual(0, stat.S_IMODE(os.stat(path).st_mode) & 0o077, path)

    def test_one_that_failed_names_the_cause_and_its_logs(self):
        self.job(self.name, "echo ValueError: bad batch >&2; exit 3", "--max_restarts", 2, "--tee", 3, status=1)
        (job,) = self.ended()
        self.assertEqual(("failed", 1, 2, 2), (job["outcome"], job["status"], job["restart_count"], job["max_restarts"]))
        text = self.ask("status", "--ended")
        said = re.search(r"error: the job failed: (.*?)( \(rule \w+\))?$", self.bed.agents[0].text(), re.MULTILINE)[1]
        self.assertIn(f"\n  {said}\n", text)
        logs = re.search(r"^  logs: (.*)$", text, re.MULTILINE)[1]
        with open(os.path.join(logs, "attempt_2", "0", "stderr.log"), encoding="utf-8") as log:
            self.assertIn("bad batch", log.read())

    def test_without_files_there_are_no_logs_to_name(self):
        self.job(self.name, "exit 3", status=1)
        self.assertEqual("", self.ended()[0]["logs"])
        self.assertNotIn("logs:", self.ask("status", "--ended"))

    def test_one_that_ddprun_stop_ended(self):
        agent = self.running(self.name)
        self.ask("stop", "--rdzv_id", self.name, "--reason", "enough")
        self.assert_status(1, agent)
        (job,) = self.ended()
        self.assertEqual("stopped", job["outcome"])
        self.assertIn("enough", self.ask("status", "--ended"))

    def test_one_that_a_signal_ended(self):
        agent = self.running(self.name)
        agent.signal(signal.SIGINT)
        self.assert_status(1, agent)
        (job,) = self.ended()
        self.assertEqual(("stopped", 1), (job["outcome"], job["status"]))
        self.assertIn("SIGINT", job["reason"])

    def test_two_nodes_of_one_machine_are_one_job(self):
        options = ("--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--nnodes", 2)
        agents = [self.start(self.name, "exit $RANK", *options) for _ in range(2)]
        for agent in agents:
            self.assert_status(1, agent)
        (job,) = self.ended()
        self.assertEqual(("failed", "worker rank 1"), (job["outcome"], job["reason"][:13]))
        self.assertEqual(1, len(self.files()))

    def test_a_node_that_left_alone_is_replaced_by_the_verdict(self):
        port = free_port()
        options = ("--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}", "--nnodes", "1:2")
        agents = [self.start(self.name, "exec sleep 1000", *options, "--rdzv_conf", f"is_host={host}") for host in (1, 0)]
        self.bed.event("generation", alive=agents, world="2")
        node = self.bed.event("agent_start", pid=agents[1].pid)["node"]
        self.ask("drain", node, "--rdzv_id", self.name)
        self.assert_status(75, agents[1])
        (job,) = self.ended()
        self.assertEqual(("preempted", 75, node), (job["outcome"], job["status"], job["node"]))
        self.assertIn("drain", job["reason"])
        self.ask("stop", "--rdzv_id", self.name, "--reason", "enough")
        self.assert_status(1, agents[0])
        (job,) = self.ended()
        self.assertIn("enough", job["reason"])

    def test_newest_first_and_one_by_its_name(self):
        for name in ("first", "a/b c", "last"):
            self.job(name, "exit 0")
        self.assertEqual(["last", "a/b c", "first"], [job["run_id"] for job in self.ended()])
        (job,) = self.ended("--rdzv_id", "a/b c")
        self.assertEqual("a/b c", job["run_id"])
        text = self.ask("status", "--ended", "--rdzv_id", "first")
        self.assertRegex(
            text, r"\A(?s:job first: .*every rank .* \(rule all_succeeded\)\n  began \d{4}-.*, reported by node \S+\n)\Z")
        self.assertEqual(text.splitlines()[-1], self.ask("status", "--ended", "-o", "wide").splitlines()[-1])
        said = self.ask("status", "--ended", "--rdzv_id", "other", status=1)
        self.assertIn("no job 'other' of yours is known to have ended", said)

    def test_status_points_at_it(self):
        of_it = ("status", "--rdzv_id", self.name)
        self.assertNotIn("--ended", self.ask(*of_it, status=1))
        self.job(self.name, "exit 3", status=1)
        self.assertRegex(self.ask(*of_it, status=1), rf"\Addprun: error: no job '{self.name}' of yours .*; job '{self.name}' "
                         r"failed [\d.]+ \w+ ago \(see ddprun status --ended\)\n\Z")
        self.assertNotIn("--ended", self.ask("status", "--rdzv_id", self.name + "x", status=1))
        (record,) = self.files()
        with open(os.path.join(self.folder, record), encoding="utf-8") as source:
            job = json.load(source)
        job["ended_ms"] -= 25 * 3600 * 1000
        self.bed.write(os.path.join(self.folder, record), json.dumps(job))
        self.assertNotIn("--ended", self.ask(*of_it, status=1), "a day later")


class NoRecords(EndedTestCase):
    """What leaves none, and what becomes of a job whose end can't be kept: nothing."""

    def test_twin_nothing_has_ended(self):
        agent = self.running(self.name)
        self.assertEqual("ddprun: error: no job of yours is known to have ended on this machine\n",
                         self.ask("status", "--ended", status=1))
        agent.signal(signal.SIGKILL)
        agent.wait(20 * SLOW)
        self.assertEqual([], self.files(), "a killed agent can't say how its job ended")

    def test_homes_that_take_no_record(self):
        home = self.bed.path("home")
        self.bed.write("file", "")
        for variables in ({"HOME": ""}, {"HOME": "/nonexistent"}, {"HOME": "/proc"}, {"XDG_STATE_HOME": "/dev/full"},
                          {"XDG_STATE_HOME": self.bed.path("file")}, {"HOME": "home"}):
            with self.subTest(variables=variables):
                agent = self.job(self.name, "exit 3", status=1, env=variables)
                self.assertNotIn("ended", agent.text())
                self.assertEqual([], os.listdir(home))
        self.assertFalse(os.path.exists("/nonexistent"))
        self.job(self.name, "exit 3", status=1)
        self.assertEqual(1, len(self.files()), "negative control: a home that takes it")

    def test_a_folder_that_is_read_only(self):
        """The agent runs as a user other than root; for root no folder is read-only."""
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o500)
        prefix = []
        if os.getuid() == 0:
            prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            if shutil.which("setpriv") is None:
                self.skipTest("root writes everywhere, and there is no setpriv")
            for base, _, _ in os.walk(self.bed.folder):
                os.chown(base, 65534, 65534)
        for mode, records in ((0o500, 0), (0o700, 1)):
            os.chmod(self.folder, mode)
            command = [*prefix, DDPRUN, "--standalone", "--no_python", "sh", "-c", "exit 3"]
            agent = self.bed.start_process(f"mode{mode:o}", command, env=self.bed.environment,
                                           output=self.bed.path(f"mode{mode:o}.out"))
            self.assert_status(1, agent)
            self.assertIn("the job failed", agent.text())
            self.assertEqual(records, len(self.files()))

    def test_an_agent_that_is_asked_while_it_ends(self):
        """Commands ask all agents of this user, at any moment of their ends."""
        job = f"for number in 1 2 3 4 5 6 7 8 9; do {DDPRUN} --standalone --no-python true || exit 1; done"
        asked = f"while kill -0 $1 2>/dev/null; do {DDPRUN} status >/dev/null 2>&1; done; true"
        jobs = subprocess.Popen(["sh", "-c", job], env=self.bed.environment, stderr=subprocess.PIPE, text=True)
        askers = [subprocess.Popen(["sh", "-c", asked, "sh", str(jobs.pid)], env=self.bed.environment) for _ in range(3)]
        said = jobs.communicate(timeout=60 * SLOW)[1]
        for asker in askers:
            self.assertEqual(0, asker.wait(30 * SLOW))
        self.assertEqual(0, jobs.returncode, said)

    def test_commands_that_run_no_job(self):
        self.ask("--help")
        self.ask("status", "--rdzv_id", self.name, status=1)
        self.ask("test", "--nnodes", "1")
        self.ask("--nnodes", "1", "--nproc_per_node", "none", "true", status=1)
        self.assertEqual([], self.files())
        self.ask("--nnodes", "1", "--no_python", "true")
        self.assertEqual(1, len(self.files()), "negative control: one that does")

    def test_a_node_that_waits_has_no_job(self):
        port = free_port()
        agent = self.bed.run("waits", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}",
                                       "--rdzv_conf", "is_host=0", "--event_log", self.bed.events.path, "--no_python", "true"])
        self.bed.event("agent_start", alive=[agent])
        agent.signal(signal.SIGINT)
        agent.wait(20 * SLOW)
        self.assertEqual([], self.files())

    def test_other_files_are_no_records(self):
        self.job(self.name, "exit 0")
        for name, text in (("x.json", "{"), ("y.json", "[[[["), ("z.json", "\x00\x01"), ("w.json", '{"run_id": 3}')):
            self.bed.write(os.path.join(self.folder, name), text)
        self.assertEqual([self.name], [job["run_id"] for job in self.ended()])

    def test_it_looks_once(self):
        for option in (("--watch", "1"), ("--status_page", "0")):
            self.assertIn("--ended looks once", self.ask("status", "--ended", *option, status=2))


class Service(EndedTestCase):
    """`ddprun rendezvous`: what it counts, and that its owner's commands find it."""

    def serve(self, *options):
        self.port = free_port()
        service = self.bed.run("service", ["rendezvous", "--listen", f"127.0.0.1:{self.port}", "--status_page", 0,
                                           "--event_log", self.bed.events.path, *options])
        self.url = self.bed.event("status_page", alive=[service])["url"]
        self.bed.wait(lambda: "Ctrl-C ends it" in service.text(), "the service", alive=[service])
        self.meet = ("--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_conf", "is_host=0", *options)
        return service

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10 * SLOW) as answer:
            return answer.read().decode()

    def counts(self):
        lines = re.findall(r'^ddprun_jobs_ended_total\{outcome="(\w+)"\} (\d+)$', self.get("metrics"), re.MULTILINE)
        return {name: int(number) for name, number in lines}

    def test_jobs_are_counted_by_their_outcome(self):
        service = self.serve()
        nothing = dict.fromkeys(("succeeded", "failed", "failed_for_good", "stopped", "preempted"), 0)
        self.assertEqual(nothing, self.counts())
        self.job("good", "exit 0", *self.meet)
        self.job("good2", "exit 0", *self.meet)
        self.job("bad", "exit 3", *self.meet, status=1)
        agent = self.running("stopped", *self.meet, count=4)
        self.ask("stop", "--rdzv_id", "stopped")
        self.assert_status(1, agent)
        wanted = {**nothing, "succeeded": 2, "failed": 1, "stopped": 1}
        self.bed.wait(lambda: self.counts() == wanted, "all four are counted", alive=[service])
        told = json.loads(self.get("api/v1/status"))["jobs_ended"]
        self.assertEqual({"failed": 1, "stopped": 1, "succeeded": 2}, {each["outcome"]: each["jobs"] for each in told})
        if PROMTOOL is not None:
            checked = subprocess.run([PROMTOOL, "check", "metrics"], input=self.get("metrics"), capture_output=True, text=True,
                                     check=False)
            self.assertEqual(("", 0), (checked.stdout + checked.stderr, checked.returncode))

    def test_a_run_id_may_come_again(self):
        """Each time is a record of its own, although the service is the same."""
        self.serve()
        for status in (1, 0, 1):
            self.job(self.name, f"exit {status}", *self.meet, status=status)
        self.assertEqual(["failed", "succeeded", "failed"], [job["outcome"] for job in self.ended("--rdzv_id", self.name)])

    def test_a_home_that_does_not_answer(self):
        """Stands for a home on NFS without its server: opening a record takes for ever. The job's next run ends all the same."""
        self.serve()
        self.job(self.name, "exit 3", *self.meet, status=1)
        (record,) = self.files()
        path = os.path.join(self.folder, record)
        os.rename(path, path + ".aside")
        os.mkfifo(path)
        began = time.monotonic()
        agent = self.job(self.name, "exit 3", *self.meet, status=1)
        self.assertLess(time.monotonic() - began, 5 * SLOW)
        self.assertIn("the job failed", agent.text())
        self.assertTrue(stat.S_ISFIFO(os.stat(path).st_mode), "negative control: it did try to read it")
        os.unlink(path)
        self.job(self.name, "exit 3", *self.meet, status=1)
        self.assertEqual(1, len(self.ended()))

    def test_its_owner_needs_neither_address_nor_token(self):
        service = self.serve("--token_file", self.bed.write("token", "secret\n", mode=0o400))
        with self.bed.as_another_user():  # else commands ask the job's agent where its service is
            agent = self.running(self.name, *self.meet)
        job7 = ("--rdzv_id", self.name)
        for words in ((), ("--rdzv_endpoint", f"localhost:{self.port}")):
            with self.subTest(words=words):
                self.assertIn(f"job {self.name}: running", self.ask("status", *job7, *words))
                self.assertIn("no node of the job has", self.ask("drain", "nobody", *job7, *words, status=1))
        with self.bed.as_another_user():  # negative control: the socket isn't seen
            os.rename(self.bed.path("theirs"), self.bed.path("moved"))
            os.mkdir(self.bed.path("theirs"))
            self.assertIn(f"no job '{self.name}' of yours runs on this machine", self.ask("status", *job7, status=1))
            self.assertIn("token", self.ask("stop", "--rdzv_endpoint", f"127.0.0.1:{self.port}", *job7, status=1))
            os.rmdir(self.bed.path("theirs"))
            os.rename(self.bed.path("moved"), self.bed.path("theirs"))
        self.ask("stop", *job7)
        self.assert_status(1, agent)
        service.signal(signal.SIGTERM)
        self.assert_status(0, service)
        self.assertEqual([], [name for name in os.listdir(self.bed.path("run")) if name.startswith("ddprun_")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
