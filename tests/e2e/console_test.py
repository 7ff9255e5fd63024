#!/usr/bin/env python3
"""The console that ddprun has, and the workers through it: what they say is shown as it is and kept for the report, a
terminal stays one, and a console that nobody reads holds up nobody who has to end."""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, SLOWNESS, BedTestCase, free_port, read_until  # noqa: E402
from timeline import state_of  # noqa: E402

MISSING = "import sys\nprint('to stdout', flush=True)\nimport no_such_module_at_all\n"
# Writes to stderr, closes both streams and ends, all at once.
QUICK = "import os\nos.write(2, b'words')\nos.close(1)\nos.close(2)\nos._exit(1)\n"
# More than a console that nobody reads takes.
TALKS = "import os\nos.write(2, b'x' * 65000)\nos.write(2, b'words\\n')\nos._exit(1)\n"
# Writes down what it sees on USR1, with the event's name; ends on USR2.
LOOKS = """import fcntl, json, os, signal, struct, sys, termios, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
def look(event):
    terminals = [os.isatty(fd) for fd in (0, 1, 2)]
    size = struct.unpack("HHHH", fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))[:2] if terminals[2] else None
    with open(sys.argv[1], "a") as journal:
        journal.write(json.dumps({"t": time.monotonic(), "event": event, "pid": os.getpid(), "terminals": terminals,
                                  "size": size}) + "\\n")
print("a\\tb", file=sys.stderr)
look("first")
while signal.sigwait([signal.SIGUSR1, signal.SIGUSR2]) == signal.SIGUSR1:
    look("again")
"""
# Floods a stream that nobody reads, and says so when it takes no more; then it waits in write(2).
FLOODS = """import os, select, sys, time
os.set_blocking(2, False)
block = b"y" * 4095 + b"\\n"
while select.select([], [2], [], 0.5)[1]:
    os.write(2, block)
os.set_blocking(2, True)
with open(sys.argv[1], "a") as journal:
    journal.write('{"t": %r, "event": "full", "pid": %d}\\n' % (time.monotonic(), os.getpid()))
os.write(2, block * 1000)
"""


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class ConsoleTestCase(BedTestCase):
    def report(self, name="report.json"):
        with open(self.bed.path(name), encoding="utf-8") as source:
            return json.load(source)

    def run_failing(self, text, *options, **streams):
        """An agent whose worker fails with status 1, and its report."""
        script = self.bed.write("script.py", text)
        agent = self.bed.run("ddprun", [*options, "--report_file", self.bed.path("report.json"), script], **streams)
        self.assert_status(1, agent)
        return agent, self.report()


class LastWords(ConsoleTestCase):
    """The report has stderr's last lines and the advice, however the streams go."""

    def check(self, report):
        cause, = report["root_causes"]
        self.assertIn("ModuleNotFoundError: No module named 'no_such_module_at_all'", cause["stderr_tail"])
        self.assertNotIn("to stdout", cause["stderr_tail"])
        self.assertEqual("missing_module", (cause["advice"] or {}).get("rule"))

    def test_one_file_for_both_streams(self):
        agent, report = self.run_failing(MISSING)
        self.check(report)
        text = agent.text()
        self.assertRegex(text, r"(?s)^to stdout\nTraceback.*ddprun: worker rank 0.*advice    : .*stderr    : \(last lines\)")
        self.assertEqual(1, text.partition("ddprun: worker rank 0")[0].count("ModuleNotFoundError"), "it is shown twice")

    def test_a_worker_that_has_ended_before_its_agent_looks(self):
        """Which hears of its start, its words and its end at once, and shows the words in their order."""
        script = self.bed.write("script.py", f"""import os, signal, sys
if os.environ["RANK"] != "0":
    signal.pause()
with open(sys.argv[1], "a") as journal:
    journal.write('{{"t": 1, "event": "there", "pid": %d}}\\n' % os.getpid())
{MISSING}""")
        port = free_port()

        def node(rank):
            return self.bed.run(f"node{rank}", ["--nnodes", 2, "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port",
                                                port, "--lease", 60, "--event_log", self.bed.events.path, script,
                                                self.bed.journal.path])

        late = node(0)
        keeper = self.bed.event("agent_start", alive=[late])["keeper"]
        os.kill(keeper, signal.SIGSTOP)
        other = node(1)
        self.bed.event("spawn", pid=late.pid, alive=[late, other])
        while state_of(late.pid) != "S":  # it says so before it asks its keeper for the worker
            os.sched_yield()
        late.signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGCONT)
        worker, = self.bed.wait(lambda: self.bed.journal.find("there"), "the worker")
        while state_of(worker["pid"]):
            os.sched_yield()
        late.signal(signal.SIGCONT)
        self.assert_status(1, late)
        self.assertRegex(late.text(), r"(?s)to stdout\nTraceback.*ddprun: worker rank 0 .*exited with code 1")
        self.assert_status(1, other)

    def test_two_pipes(self):
        agent, report = self.run_failing(MISSING, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.check(report)
        self.assertEqual(b"to stdout\n", agent.stdout.read())
        self.assertTrue(agent.stderr.read().startswith(b"Traceback"))

    def test_without_files(self):
        self.check(self.run_failing(MISSING, "--log_dir", "/dev/null")[1])

    def test_what_ends_right_after_its_words(self):
        """The end of the pipe comes before the end of the worker: ten times, because it need not be handled before."""
        for options in (["--tee", 2], ["--prefix_output"], []):
            for _ in range(10):
                _, report = self.run_failing(QUICK, *options, "--log_dir", self.bed.path("logs"))
                self.assertEqual("words\n", report["root_causes"][0]["stderr_tail"], options)

    def test_twin_a_silent_worker(self):
        agent, report = self.run_failing("import os\nos._exit(1)\n")
        self.assertEqual("", report["root_causes"][0]["stderr_tail"])
        self.assertIn("stderr    : nothing was written", agent.text())

    def test_words_that_a_dead_agent_did_not_read(self):
        """The words are still in the pipe when the agent is killed; so are those of a worker that is killed with it."""
        script = self.bed.write("script.py", """import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
with open(sys.argv[1], "a") as journal:
    journal.write('{"t": 1, "event": "there", "pid": %d}\\n' % os.getpid())
signal.sigwait([signal.SIGUSR1])
os.write(2, b"the last words\\n")
with open(sys.argv[1], "a") as journal:
    journal.write('{"t": 2, "event": "said"}\\n')
signal.pause()
""")
        agent = self.bed.run("ddprun", ["--event_log", self.bed.events.path, script, self.bed.journal.path])
        worker, = self.bed.wait(lambda: self.bed.journal.find("there"), "the worker", alive=[agent])
        keeper = os.pidfd_open(self.bed.event("agent_start")["keeper"])
        agent.signal(signal.SIGSTOP)
        os.kill(worker["pid"], signal.SIGUSR1)
        self.bed.wait(lambda: self.bed.journal.find("said"), "its words")
        agent.signal(signal.SIGKILL)
        agent.wait(PATIENCE)
        poll = select.poll()
        poll.register(keeper)
        self.assertTrue(poll.poll(PATIENCE * 1000), "the keeper is still there")
        os.close(keeper)
        self.assertIn("the last words\n", agent.text())


class Terminal(ConsoleTestCase):
    def start(self, **streams):
        """(an agent of a worker that looks around, the terminal's other side)."""
        master, terminal = os.openpty()
        self.addCleanup(os.close, master)
        set_size(terminal, 33, 77)
        script = self.bed.write("script.py", LOOKS)
        agent = self.bed.run("ddprun", [script, self.bed.journal.path],
                             **{"stdin": subprocess.DEVNULL, "stdout": terminal, "stderr": terminal, **streams})
        os.close(terminal)
        first, = self.bed.wait(lambda: self.bed.journal.find("first"), "the worker to look", alive=[agent])
        return agent, master, first

    def test_a_terminal_stays_one_and_has_its_size(self):
        agent, master, first = self.start()
        self.assertEqual([False, True, True], first["terminals"])
        self.assertEqual([33, 77], first["size"])
        # The terminal does what terminals do to bytes, once.
        words = b""
        while len(words) < 5:  # it may come in parts
            words += os.read(master, 100)
        self.assertEqual(b"a\tb\r\n", words)
        os.kill(first["pid"], signal.SIGUSR2)
        self.assert_status(0, agent)

    def test_a_new_size_reaches_the_worker(self):
        agent, master, first = self.start()
        set_size(master, 50, 120)
        agent.signal(signal.SIGWINCH)  # as the terminal does for its foreground processes

        def look():
            os.kill(first["pid"], signal.SIGUSR1)
            return [line for line in self.bed.journal.find("again") if line["size"] == [50, 120]]
        self.bed.wait(look, "the worker to see the size", alive=[agent])
        os.kill(first["pid"], signal.SIGUSR2)
        self.assert_status(0, agent)

    def test_only_stderr_is_one(self):
        out = self.bed.path("out")
        with open(out, "wb") as sink:
            agent, _, first = self.start(stdout=sink)
        self.assertEqual([False, False, True], first["terminals"])
        os.kill(first["pid"], signal.SIGUSR2)
        self.assert_status(0, agent)

    def test_twin_a_file_is_none(self):
        with open(self.bed.path("out"), "wb") as sink:
            agent, _, first = self.start(stdout=sink, stderr=sink)
        self.assertEqual([False, False, False], first["terminals"])
        os.kill(first["pid"], signal.SIGUSR2)
        self.assert_status(0, agent)

    def test_words_of_a_worker_on_a_terminal_are_kept(self):
        master, terminal = os.openpty()
        self.addCleanup(os.close, master)
        agent, report = None, None
        with os.fdopen(terminal, "wb", buffering=0) as sink:
            agent, report = self.run_failing(MISSING, stdout=sink, stderr=sink)
        self.assertIn("ModuleNotFoundError", report["root_causes"][0]["stderr_tail"])
        self.assertEqual(1, agent.returncode)


class Unread(ConsoleTestCase):
    """A console that nobody reads."""

    def start(self, *options):
        """(an agent whose worker floods the console, the end from which nobody reads)."""
        source, sink = os.pipe()
        script = self.bed.write("script.py", FLOODS)
        agent = self.bed.run("ddprun", [*options, "--report_file", self.bed.path("report.json"), script, self.bed.journal.path],
                             stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        os.close(sink)
        self.addCleanup(os.close, source)
        self.bed.wait(lambda: self.bed.journal.find("full"), "a full console", alive=[agent])
        return agent, source

    def test_term_ends_the_agent_and_the_report_is_written(self):
        for options in ([], ["--tee", 2, "--log_dir", self.bed.path("logs")], ["--prefix_output"]):
            with self.subTest(options):
                agent, _ = self.start(*options)
                agent.signal(signal.SIGTERM)
                self.assert_status(1, agent, 10 * SLOW)
                self.assertEqual("stopped", self.report()["outcome"])
                os.unlink(self.bed.path("report.json"))
                self.bed.journal.lines.clear()

    def test_memory_stays_small(self):
        agent, _ = self.start()
        with open(f"/proc/{agent.pid}/status", encoding="utf-8") as status:
            peak_kib = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))
        if SLOWNESS == 1:  # a sanitizer's memory is its own affair
            self.assertLess(peak_kib, 64 << 10)
        agent.signal(signal.SIGTERM)
        self.assert_status(1, agent, 10 * SLOW)

    def test_a_job_that_ends_by_itself_waits_for_its_reader(self):
        """Negative control of the bound: without a signal nothing is lost. The report file is there before."""
        script = self.bed.write("script.py", TALKS)
        source, sink = os.pipe()
        report = ["--report_file", self.bed.path("report.json")]
        agent = self.bed.run("ddprun", ["--event_log", self.bed.events.path, *report, script], stdout=sink, stderr=sink)
        os.close(sink)
        self.bed.event("agent_exit", alive=[agent])
        self.assertEqual("failed", self.report()["outcome"])
        self.assertFalse(agent.ended())
        with os.fdopen(source, "rb") as reader:
            text = read_until(reader, rb"=====\n$", PATIENCE)
        self.assert_status(1, agent)
        self.assertIn(b"words\n", text)
        self.assertIn(b"FAILED", text)

    def test_a_second_signal_ends_it_also_as_the_first_process_of_a_container(self):
        unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
        there = shutil.which("unshare") is not None
        if not there or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this system makes no PID namespaces (unshare(1))")
        script = self.bed.write("script.py", TALKS)
        source, sink = os.pipe()
        self.addCleanup(os.close, source)
        outer = self.bed.start_process("ddprun", [*unshare, DDPRUN, "--event_log", self.bed.events.path, script],
                                       stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=self.bed.environment)
        os.close(sink)
        self.bed.event("agent_exit", alive=[outer])
        with open(f"/proc/{outer.pid}/task/{outer.pid}/children", encoding="utf-8") as children:
            agent, = map(int, children.read().split())
        os.kill(agent, signal.SIGTERM)
        self.assert_status(1, outer, 10 * SLOW)


class Closed(ConsoleTestCase):
    """Standard streams that are closed: workers have some all the same, and nothing of ddprun's gets such a number."""

    def test_each_and_all(self):
        text = "import os, sys\nfor fd in (0, 1, 2): os.fstat(fd)\nopen(sys.argv[1], 'w').close()\n"
        script = self.bed.write("script.py", text)
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                done = self.bed.path("done")
                agent = self.bed.start_process("ddprun", ["bash", "-c", f'exec "$@" {closed}', "bash", DDPRUN, script, done],
                                               output=self.bed.path("ddprun.out"), env=self.bed.environment)
                self.assert_status(0, agent)
                os.unlink(done)


if __name__ == "__main__":
    unittest.main(verbosity=2)
