#!/usr/bin/env python3
"""`ddprun logs` (docs/LOGS.md#ddprun-logs): what the workers of all nodes write, also while and after they restart."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import unittest

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)

from bed import DDPRUN, PATIENCE, SLOW, BedTestCase, free_port  # noqa: E402

# Prints its attempt, then what comes through its FIFO, line by line, and that it ends, on stderr. "fail" makes it fail.
WORKER = """
import os, sys
folder, journal, support = sys.argv[1:]
sys.path.insert(0, support)
from worker import write_line
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"begin {attempt}", flush=True)
write_line(journal, "begun", attempt=int(attempt), rank=int(rank))
for line in open(os.path.join(folder, f"fifo-{rank}")):
    print(line.strip(), flush=True)
    if line == "fail\\n":
        sys.exit(3)
print("last words", file=sys.stderr, flush=True)
"""


class LogsTestCase(BedTestCase):
    def start_job(self, *options, nodes=2, log_options=("--redirects", 3)):
        self.port = free_port()
        script = self.bed.write("worker.py", WORKER)
        self.fifos = {}
        for rank in range(2 * nodes):
            os.mkfifo(self.bed.path(f"fifo-{rank}"))
            # Open for both, so that nobody waits for the other end.
            self.fifos[rank] = os.open(self.bed.path(f"fifo-{rank}"), os.O_RDWR)
            self.addCleanup(os.close, self.fifos[rank])
        self.agents = []
        # No other test's: the logs are taken from those agents of this machine that have the run id.
        run_id = f"job-{self.bed.tag}"
        for i in range(nodes):
            self.agents.append(self.bed.run(
                f"node{i}", ["--nnodes", nodes, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_id", run_id,
                             "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_conf", f"is_host={int(i == 0)}",
                             "--max_restarts", 2, "--event_log", self.bed.events.path, "--log_dir", self.bed.path("logs"),
                             *log_options, *options, script, self.bed.folder, self.bed.journal.path, SUPPORT]))
        self.wait_begun(0, 2 * nodes)

    def wait_begun(self, attempt, ranks):
        self.bed.wait(lambda: len(self.bed.journal.find("begun", attempt=attempt)) == ranks, f"workers of attempt {attempt}",
                      alive=self.agents)

    def say(self, rank, text):
        os.write(self.fifos[rank], f"{text}\n".encode())

    def command(self, *options):
        return [DDPRUN, "logs", "--rdzv_endpoint", f"127.0.0.1:{self.port}", *map(str, options)]

    def logs(self, *options, status=0):
        result = subprocess.run(self.command(*options), env=self.bed.environment, capture_output=True, text=True, check=False,
                                timeout=60 * SLOW)
        self.assertEqual(status, result.returncode, result.stderr)
        return result

    def wait_for_line(self, follower, line):
        self.bed.wait(lambda: line in follower.text().splitlines(), repr(line), alive=[follower])


class Logs(LogsTestCase):
    def test_of_all_nodes_or_one_rank(self):
        self.start_job()
        for rank in range(4):
            self.say(rank, f"hello from {rank}")
        follower = self.bed.start_process("logs", self.command("-f"), output=self.bed.path("logs.out"))
        for rank in range(4):
            self.wait_for_line(follower, f"[rank{rank}]:hello from {rank}")
        said = [f"[rank{rank}]:{line}" for rank in range(4) for line in ("begin 0", f"hello from {rank}")]
        self.assertEqual(sorted(said), sorted(self.logs().stdout.splitlines()))
        self.assertEqual(["[rank3]:begin 0", "[rank3]:hello from 3"], self.logs("--rank", 3).stdout.splitlines())
        self.assertEqual(["[rank3]:hello from 3"], self.logs("--rank", 3, "--tail", 1).stdout.splitlines())
        self.assertEqual("begin 0\nhello from 3\n", self.logs("--rank", 3, "--raw").stdout)
        nobody = self.logs("--rank", 9, status=1)
        self.assertEqual("", nobody.stdout)
        self.assertIn("--rank 9: job ", nobody.stderr)
        self.assertIn("has ranks 0 to 3", nobody.stderr)

    def test_following_goes_on_across_a_restart_and_ends_with_the_job(self):
        self.start_job()
        follower = self.bed.start_process("logs", self.command("-f"), output=self.bed.path("logs.out"))
        self.wait_for_line(follower, "[rank1]:begin 0")
        self.say(1, "fail")
        self.wait_begun(1, 4)
        for rank in range(4):
            self.wait_for_line(follower, f"[rank{rank}]:begin 1")
        self.say(2, "after the restart")
        self.wait_for_line(follower, "[rank2]:after the restart")
        subprocess.run([DDPRUN, "stop", "--rdzv_endpoint", f"127.0.0.1:{self.port}"], check=True)
        for agent in self.agents:
            self.assert_status(1, agent)
        self.assert_status(0, follower)
        lines = follower.text().splitlines()
        self.assertEqual(1, lines.count("[rank1]:fail"))
        self.assertEqual(len(lines), len(set(lines)), "each line once")

    def test_a_reader_that_stands_still_holds_up_nobody_and_misses_nothing(self):
        self.start_job(nodes=1)
        follower = self.bed.start_process("logs", self.command("-f", "--raw", "--rank", "0"), output=self.bed.path("logs.out"))
        self.bed.wait(lambda: "begin" in follower.text(), "the beginning", alive=[follower])
        follower.signal(signal.SIGSTOP)
        text = "x" * 900
        for i in range(3000):  # 2.7 MB: more than the connection holds
            self.say(0, f"{i} {text}")
        other = self.bed.start_process("other", self.command("-f", "--raw", "--rank", "0"), output=self.bed.path("other.out"))
        self.bed.wait(lambda: f"2999 {text}" in other.text(), "the last line", alive=[other])
        follower.signal(signal.SIGCONT)
        self.bed.wait(lambda: f"2999 {text}" in follower.text(), "the last line", alive=[follower])
        self.assertEqual(other.text(), follower.text())
        self.assertEqual([str(i) for i in range(3000)], [line.split()[0] for line in follower.text().splitlines()[1:]])

    def test_kubectls_habits(self):
        self.start_job()
        self.say(3, "hello")
        self.bed.wait(lambda: "hello" in self.logs("--rank", 3).stdout, "the line", alive=self.agents)
        self.assertEqual("[rank3]:hello\n", self.logs("rank3", "-n", 1).stdout)
        self.assertEqual("[rank3]:hello\n", self.logs("-n1", 3).stdout)
        line = json.loads(self.logs("rank3", "-n", 1, "-o", "json").stdout)
        wide = self.logs("rank3", "-n", 1, "-o", "wide").stdout
        self.assertEqual(("stdout", "hello", 3, 1), tuple(line[key] for key in ("stream", "line", "rank", "local_rank")))
        self.assertEqual(f"[{line['node']} rank3 generation1 stdout]:hello\n", wide)
        self.assertIn("a job is named with --rdzv_id", self.logs("job7", status=2).stderr)

    def test_since_is_what_was_written_lately(self):
        """What workers write to files themselves has no times: the agent has looked how large they were."""
        self.start_job(nodes=1)
        recent = ("--since", "1s", "--rank", 0)
        self.say_until(lambda: "begin 0" not in self.logs(*recent).stdout)
        follower = self.bed.start_process("logs", self.command(*recent, "-f"), output=self.bed.path("logs.out"))
        self.say_until(lambda: follower.text() != "")
        self.assertNotIn("begin 0", follower.text())
        self.assertIn("[rank0]:new", follower.text())
        # Negative controls: with a longer time, and without one, the first line is there.
        for options in (("--since", "2h"), ()):
            self.assertEqual(["[rank0]:begin 0", "[rank0]:new 0"], self.logs("--rank", 0, *options).stdout.splitlines()[:2])

    def say_until(self, condition):
        """Only time makes what was said old, and a follower may be slower than that: there is always something new to show."""
        deadline = time.monotonic() + PATIENCE
        for i in itertools.count():
            self.say(0, f"new {i}")
            self.logs("--rank", 0)
            if condition():
                return
            self.assertLess(time.monotonic(), deadline)

    def test_without_files_it_says_which_option_makes_them(self):
        self.start_job(nodes=1, log_options=())
        self.assertIn("--tee 3 (files and console) or --redirects 3 (files only)", self.logs(status=1).stderr)

    def test_with_a_token_it_needs_the_token(self):
        with self.bed.as_another_user():
            self.start_job("--token", "geheim")
        self.assertIn("wrong or missing token", self.logs(status=1).stderr)
        self.assertIn("[rank3]:begin 0", self.logs("--token", "geheim").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
