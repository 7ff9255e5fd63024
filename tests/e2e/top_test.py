#!/usr/bin/env python3
"""`ddprun top` on a terminal (docs/STATUS.md): what it draws, its keys, and that it leaves the terminal as it was. And
the rank that holds up a job, in every command that shows a job."""

import os
import signal
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, read_until  # noqa: E402
from status_test import StatusTestCase  # noqa: E402
from terminal import Terminal  # noqa: E402

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Top(StatusTestCase):
    def top(self, *options, **size):
        terminal = Terminal(self.bed, [DDPRUN, "top", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--interval", "0.2", *options],
                            **size)
        self.addCleanup(terminal.close)
        return terminal

    def start(self):
        self.start_job("--max_restarts", 3)
        self.wait_until_all_told()

    def assert_restored(self, terminal):
        while terminal.read(0):
            pass
        self.assertEqual((1, 1), (terminal.bytes.count(ENTER), terminal.bytes.count(LEAVE)))
        self.assertEqual(terminal.before, termios.tcgetattr(terminal.slave))

    def test_it_follows_the_ranks_at_80_columns(self):
        self.start()
        terminal = self.top()
        train = [[rank, "train"] for rank in "0123"]
        # On a busy machine one may be slow for a moment.
        screen = terminal.wait(lambda lines: "restarts 0 of 3" in lines[0]
                               and [line.split()[:3:2] for line in lines[6:10]] == train, "the job")
        self.assertRegex(screen[0], rf"^job job7: running for .*; 127\.0\.0\.1:{self.port}$")
        self.assertRegex(screen[3], r"^2 nodes, 4 ranks; step \d+( to \d+)?; \S+ steps/s")
        self.assertEqual("RANK  NODE", screen[5].strip()[:10])
        self.assertNotIn("\x1b", "".join(screen))
        self.assertIn(b"\x1b[90m", terminal.bytes, "colours")
        rows = [line.split() for line in screen[6:10]]
        for line in screen:
            self.assertLessEqual(len(line), 80)
        first = int(rows[0][3])
        terminal.wait(lambda lines: int(lines[6].split()[3]) > first, "a later step")
        self.bed.kill_alone(3)
        screen = terminal.wait(lambda lines: "generation 2, restarts 1 of 3" in lines[0], "the restart")
        self.assertIn("SIGKILL", screen[2])
        terminal.type(b"q")
        self.assertEqual(0, terminal.process.wait(PATIENCE))
        self.assert_restored(terminal)
        self.stop()

    def test_keys_sort_and_a_new_size_counts_at_once(self):
        self.start()
        terminal = self.top("--interval", "600")  # nothing is looked at but for keys
        terminal.wait(lambda lines: "r [rank]" in lines[-1], "the keys")
        for key, name in ((b"s", "steps/s"), (b"b", "behind"), (b"t", "silent"), (b"r", "rank")):
            terminal.type(key)
            terminal.wait(lambda lines, name=name: f"[{name}]" in lines[-1], name)
        terminal.resize(40, 9)
        screen = terminal.wait(lambda lines: len(lines) == 9, "a small screen")
        self.assertTrue(all(len(line) <= 40 for line in screen), screen)
        self.assertIn("3 more", screen[7])
        terminal.type(b"q")
        self.assertEqual(0, terminal.process.wait(PATIENCE))
        self.stop()

    def test_signals_and_the_end_of_the_job_leave_the_terminal_as_it_was(self):
        self.start()
        for act in (lambda t: t.process.signal(signal.SIGTERM), lambda t: t.type(b"\x03")):
            terminal = self.top()
            terminal.wait(lambda lines: "job7" in lines[0], "the job")
            act(terminal)
            self.assertEqual(0, terminal.process.wait(PATIENCE))
            self.assert_restored(terminal)
        terminal = self.top()
        terminal.wait(lambda lines: "job7" in lines[0], "the job")
        self.stop()
        self.assertEqual(1, terminal.process.wait(PATIENCE))
        self.assert_restored(terminal)
        self.assertIn(b"ddprun: error: ", terminal.bytes.split(LEAVE)[1])

    def test_a_rank_that_lags_stands_out_at_60_columns(self):
        self.start_job(plans=["alone", "3@200=slower"])
        self.wait_until_all_told()
        terminal = self.top(columns=60)
        # On a busy machine others may lag for a moment, too.
        screen = terminal.wait(lambda lines: lines[4].startswith("slowest: rank 3 on ") and " behind " in lines[9]
                               and " behind " not in "".join(lines[6:9]), "the only slow rank")
        self.assertRegex(screen[4], r", \d+ steps behind")
        self.assertRegex(screen[9], r"^ +3  \S+ +behind +\d+ +\d+ ")
        self.assertTrue(all(len(line) <= 60 for line in screen), screen)
        self.assertRegex(terminal.bytes, rb"\x1b\[33m +3 ")
        terminal.type(b"q")
        self.assertEqual(0, terminal.process.wait(PATIENCE))
        self.stop()

    def test_without_colours_for_who_wants_none(self):
        self.start()
        terminal = self.top(env={"NO_COLOR": "1"})
        terminal.wait(lambda lines: "job7" in lines[0], "the job")
        self.assertNotRegex(terminal.bytes, rb"\x1b\[(9?[0-9];)?[39][0-9]m")
        self.assertIn(b"\x1b[7m", terminal.bytes, "the titles stand out all the same")
        terminal.type(b"q")
        self.assertEqual(0, terminal.process.wait(PATIENCE))
        self.stop()

    def test_without_a_terminal_it_says_what_to_take(self):
        self.start()
        result = subprocess.run([DDPRUN, "top", "--rdzv_endpoint", f"127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=False, timeout=60 * SLOW)
        self.assertEqual((1, ""), (result.returncode, result.stdout))
        self.assertIn("ddprun status --watch 1", result.stderr)
        self.stop()


class HoldUp(StatusTestCase):
    def test_a_rank_that_holds_up_the_job_is_shown_until_it_goes_on(self):
        self.start_job()
        self.wait_for_step(int(300 * SLOW))

        def held_up(job):
            return [worker["rank"] for node in job["nodes"] for worker in node["workers"] if worker["lag"] == "holds up"]
        self.assertEqual([], held_up(self.job()))
        watch = subprocess.Popen([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--watch", "0.2"],
                                 stdout=subprocess.PIPE)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.kill)
        self.bed.signal_workers(self.bed.workers(1, 4)[3:], signal.SIGSTOP)
        read_until(watch.stdout, rb"\n {9}rank 3 holds up the job for [\d.]+ m?s: stopped by a signal; others are at step \d+\n",
                   PATIENCE)
        job = self.job()
        self.assertEqual([3], held_up(job))
        node, = [node for node in job["nodes"] if node["lag"] == "holds up"]
        self.assertEqual([0, 0], [each["step_us"] for each in job["nodes"]])
        self.assertIn("stopped by a signal", node["workers"][1]["hold_up"]["why"])
        self.assertGreater(node["workers"][1]["hold_up"]["lasted_ms"], 0)
        self.assertRegex(self.get("metrics")[0], r'(?m)^ddprun_node_lag{run_id="job7",node="[^"]+",lag="holds up"} 1$')
        self.bed.signal_workers(self.bed.workers(1, 4)[3:], signal.SIGCONT)
        self.wait_for_job(lambda job: not held_up(job) and all(node["step_us"] > 0 for node in job["nodes"]), "that it goes on")
        self.assertNotIn("holds up", self.status().stdout)
        self.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
