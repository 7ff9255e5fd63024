#!/usr/bin/env python3
"""Torchrun's report and error files, --report_file, and what else is known of a failure."""

import json
import os
import resource
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, BedTestCase, free_port  # noqa: E402

# What torch's @record writes for an exception.
RECORD = {"message": {"message": "ValueError: bad batch", "extraInfo": {
    "py_callstack": "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: bad batch\n",
    "timestamp": "1700000000"}}}
WRITE_FILE = "import os, sys\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({!r})\nsys.exit({})\n"


def failures_of(text):
    """{rank: lines of its block}, and the lines of the root cause."""
    blocks, root, in_root, current = {}, [], False, []
    for line in text.splitlines():
        in_root = in_root or line.startswith("Root Cause")
        if line.startswith("["):
            current = []
        current.append(line)
        if line.startswith("  rank      : "):
            blocks[int(line.split()[2])] = current
        if in_root:
            root.append(line)
    return blocks, "\n".join(root)


class ReportTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.report = self.bed.path("report.json")
        self.own_file = self.bed.path("own_error.json")

    def fail(self, script, *options, status=1, **more):
        agent = self.bed.run("ddprun", [*options, "--report_file", self.report, "--log_dir", self.bed.path("logs"),
                                        self.bed.write("script.py", script)],
                             env={"TORCHELASTIC_ERROR_FILE": self.own_file}, **more)
        self.assert_status(status, agent, 10 * SLOW)
        return agent.text()

    def json(self, path):
        with open(path, encoding="utf-8") as source:
            return json.load(source)


class Report(ReportTestCase):
    def test_root_cause_and_the_worker_that_was_stopped(self):
        """Check 53."""
        text = self.fail("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(60)\n",
                         "--nproc_per_node", 2)
        blocks, root = failures_of(text)
        self.assertIn("  exitcode  : 3 (pid:", root)
        self.assertIn("rank      : 1 (local_rank: 1)", root)
        self.assertIn("  traceback : stopped by ddprun after the first failure", "\n".join(blocks[0]))
        self.assertIn("  exitcode  : -15 (pid:", "\n".join(blocks[0]))
        self.assertIn("https://pytorch.org/docs/stable/elastic/errors.html", root)
        report = self.json(self.report)
        self.assertEqual(("failed", 1, 1), (report["outcome"], report["status"], report["version"]))
        cause, = report["root_causes"]
        self.assertEqual((1, 3, None), (cause["rank"], cause["exit_code"], cause["signal"]))
        stopped, = report["stopped"]
        self.assertEqual((0, "SIGTERM", None), (stopped["rank"], stopped["signal_name"], stopped["exit_code"]))
        self.assertFalse(os.path.exists(self.own_file), "a cause without an error file leaves none")

    def test_signals(self):
        """Checks 54 and 55."""
        for number, name in ((11, "SIGSEGV"), (9, "SIGKILL")):
            text = self.fail(f"import os\nos.kill(os.getpid(), {number})\n")
            _, root = failures_of(text)
            self.assertRegex(root, rf"traceback : Signal {number} \({name}\) received by PID \d+")
            self.assertIn(f"exitcode  : -{number} (pid:", root)
            self.assertEqual(name, self.json(self.report)["root_causes"][0]["signal_name"])

    def test_success_and_stop_are_reported_too(self):
        self.fail("", status=0)
        report = self.json(self.report)
        self.assertEqual(("succeeded", 0, []), (report["outcome"], report["status"], report["root_causes"]))
        agent = self.bed.agent("stopped", ["--report_file", self.report], env={"TORCHELASTIC_ERROR_FILE": self.own_file})
        self.bed.workers(1, 1, alive=[agent])
        agent.signal(signal.SIGTERM)
        self.assert_status(1, agent, 10 * SLOW)
        self.assertEqual("stopped", self.json(self.report)["outcome"])
        own = self.json(self.own_file)["message"]
        self.assertEqual(f"SignalException: Process {agent.pid} got signal: 15", own["message"])

    def test_every_node_has_the_report(self):
        port = free_port()
        options = ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"]
        agents = [self.bed.agent(f"node{n}", [*options, "--rdzv_conf", f"is_host={1 - n}", "--report_file",
                                              self.bed.path(f"report{n}.json")], worker=("only-rank=1", "exit=7"))
                  for n in range(2)]
        for agent in agents:
            self.assert_status(1, agent, 10 * SLOW)
        reports = [self.json(self.bed.path(f"report{n}.json")) for n in range(2)]
        for report in reports:
            self.assertEqual([(1, 7)], [(cause["rank"], cause["exit_code"]) for cause in report["root_causes"]])
        self.assertEqual(reports[0]["root_causes"], reports[1]["root_causes"])
        self.assertNotEqual(reports[0]["node"], reports[1]["node"])


class ErrorFiles(ReportTestCase):
    def test_form_of_record(self):
        """Checks 56 and 57."""
        text = self.fail(WRITE_FILE.format(json.dumps(RECORD), 3))
        _, root = failures_of(text)
        self.assertIn("  traceback : Traceback (most recent call last):\n    File \"t.py\", line 3\n  ValueError: bad batch",
                      root)
        self.assertRegex(root, r"error_file: \S+/attempt_0/0/error.json\n")
        own = self.json(self.own_file)
        self.assertEqual(3, own["message"].pop("errorCode"))
        self.assertEqual(RECORD, own)

    def test_plain_form(self):
        """Check 58; the launcher's file is an unchanged copy."""
        text = self.fail(WRITE_FILE.format('{"message":"m","timestamp":1}', 1))
        self.assertIn("  traceback : m\n", failures_of(text)[1])
        with open(self.own_file, encoding="utf-8") as source:
            self.assertEqual('{"message":"m","timestamp":1}', source.read())

    def test_corrupt_file(self):
        """Check 59: torchrun crashes."""
        text = self.fail(WRITE_FILE.format("{oops", 4))
        _, root = failures_of(text)
        self.assertIn("is not valid JSON", root.replace("\n              ", " "))
        self.assertIn("exitcode  : 4", root)
        own = self.json(self.own_file)["message"]
        self.assertEqual(4, own["errorCode"])
        self.assertIn("{oops", own["message"])

    def test_an_error_of_the_launchers_own(self):
        """A master port that is taken ends it before any worker runs."""
        port = free_port()
        with subprocess.Popen([sys.executable, "-c", "import socket, sys\n"
                               f"holder = socket.create_server(('0.0.0.0', {port})); print(flush=True); sys.stdin.read()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            self.fail("", "--nnodes", 1, "--master_port", port)
            holder.stdin.close()
        self.assertIn(str(port), self.json(self.own_file)["message"]["message"])
        self.assertEqual("lost", self.json(self.report)["outcome"])


class Facts(ReportTestCase):
    def facts(self):
        return self.json(self.report)["root_causes"][0]["facts"]

    def test_no_core_by_the_limit(self):
        self.fail("import os\nos.kill(os.getpid(), 11)\n",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        self.assertIn("limit: no core file was written", "".join(self.facts()))

    def test_where_the_core_is(self):
        """Negative control: with the limit lifted, the report names the core file, wherever this machine puts it."""
        if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
            self.skipTest("this machine forbids core files")
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        self.fail("import os\nos.kill(os.getpid(), 11)\n",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)))
        cause = self.json(self.report)["root_causes"][0]
        if not cause["core_dumped"]:
            self.skipTest("the kernel wrote no core file")
        core = [fact for fact in cause["facts"] if fact.startswith("core: ")][0][6:]
        if core.startswith("/"):
            self.assertIn(str(cause["pid"]), core)
            os.unlink(core)

    def test_open_files(self):
        script = "import sys\nprint('OSError: [Errno 24] Too many open files', file=sys.stderr)\nsys.exit(1)\n"
        text = self.fail(script, "--redirects", 2)
        self.assertRegex("".join(self.facts()), r"limit: at most \d+ open files \(ulimit -n\)")
        self.assertIn("  limit     : at most", text)

    def test_flight_recorder(self):
        """A dump of this generation is copied beside the logs; an older one is not mentioned."""
        prefix = self.bed.path("trace_")
        self.bed.environment["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = prefix
        self.bed.write("trace_0", "stale")
        os.utime(prefix + "0", (1, 1))
        self.fail("import sys; sys.exit(1)")
        self.assertEqual([], [fact for fact in self.facts() if fact.startswith("nccl")])
        self.fail(f"import sys\nopen({prefix + '0'!r}, 'w').write('fresh')\nsys.exit(1)\n")
        fact, = [fact for fact in self.facts() if fact.startswith("nccl")]
        path = fact.split()[-1]
        self.assertRegex(path, r"/attempt_0/flight_recorder_rank_0$")
        with open(path, encoding="utf-8") as source:
            self.assertEqual("fresh", source.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
