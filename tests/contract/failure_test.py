#!/usr/bin/env python3
"""Checks 53 to 65: workers that fail, the report, restarts."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import WHOLE_RUN, Differs, check  # noqa: E402

FIELDS = ("time      : ", "host      : ", "rank      : ", "exitcode  : ", "error_file: ", "traceback : ")

# A worker that fails as PyTorch's decorator has it: with an error file and a stack.
DECORATED = """from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    probe.tell()
    raise RuntimeError("out of cheese")
main()
"""
PLAIN_FILE = """probe.tell()
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as sink: sink.write({text!r})
sys.exit(1)
"""
GLOO_EACH_TIME = """import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
probe.tell()
if probe.attempt < 2: os._exit(1)
dist.destroy_process_group()
"""


_ENTRY = re.compile(r"^\[\d+\]:\n((?: +\w+ *: .*\n(?:(?! +\w+ *: |\[\d+\]:|[-=]{10}|[A-Z]).*\n)*)+)", re.MULTILINE)


def entries(report):
    """(root cause, [others]) of a failure report: each a text of fields."""
    found = [(match.start(), match.group(1)) for match in _ENTRY.finditer(report)]
    begin = report.find("Root Cause")
    root = next((text for start, text in found if start > begin >= 0), "")
    return root, [text for _, text in found if text != root]


class Failure(contract.ContractCase):
    def failed(self, launcher, body, *options, env=None, status=1):
        """A job of one node that must fail, with its error files in logs/."""
        job = self.job(launcher)
        job.private = True
        ended = job.run([*options, "--log-dir", "logs", job.script(body)], env=env)
        self.assertEqual(status, ended.status, ended.err)
        return job, ended

    @check(53, recorded=True)
    def test_53_root_and_other(self):
        body = "probe.tell()\nif probe.rank == 1: signal.sigwait({signal.SIGUSR1}); sys.exit(3)\nsignal.pause()\n"
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            node = job.start(["--nproc-per-node", 2, job.script(body)])
            job.finish(job.await_workers(2, alive=[node])[1:])
            ended = job.end(node)
            self.assertEqual(1, ended.status, ended.err)
            root, others = entries(ended.err)
            pids = {line["rank"]: line["pid"] for line in job.told()}
            self.assertRegex(root, rf"rank      : 1 \(local_rank: 1\)\n *exitcode  : 3 +\(pid: {pids[1]}\)", launcher.name)
            self.assertEqual(1, len(others), ended.err)
            self.assertRegex(others[0], rf"rank      : 0 \(local_rank: 0\)\n *exitcode  : -15 +\(pid: {pids[0]}\)", launcher.name)
            for field in FIELDS:
                self.assertIn(field, root, launcher.name)
            self.assertRegex(ended.err, r"={10,}\n.* FAILED\n", launcher.name)

    @check(54, recorded=True)
    def test_54_segmentation_fault(self):
        for launcher in self.launchers():
            job, ended = self.failed(launcher, "probe.tell()\nos.kill(os.getpid(), signal.SIGSEGV)\n")
            pid = job.told()[0]["pid"]
            self.assertIn(f"Signal 11 (SIGSEGV) received by PID {pid}", ended.err)
            self.assertRegex(ended.err, r"exitcode  : -11")

    @check(55, recorded=True)
    def test_55_killed(self):
        for launcher in self.launchers():
            _, ended = self.failed(launcher, "os.kill(os.getpid(), signal.SIGKILL)\n")
            self.assertRegex(entries(ended.err)[0], r"exitcode  : -9")

    @check(56, recorded=True)
    def test_56_decorated_worker(self):
        for launcher in self.launchers():
            job, ended = self.failed(launcher, DECORATED, env={"PYTHON_EXEC": launcher.python})
            files = {path: text for path, text in job.files("logs").items() if path.endswith("error.json")}
            (path, text), = files.items()
            content = json.loads(text)["message"]
            self.assertEqual("RuntimeError: out of cheese", content["message"])
            self.assertIn("Traceback (most recent call last)", content["extraInfo"]["py_callstack"])
            self.assertRegex(content["extraInfo"]["timestamp"], r"\A\d+\Z")
            self.assertRegex(ended.err, "error_file: .*" + path)
            # The stack's first line stands behind the field, the further ones are indented by two.
            self.assertRegex(ended.err, r"traceback : Traceback \(most recent call last\):\n +File ")
            self.assertIn("RuntimeError: out of cheese", entries(ended.err)[0])

    @check(57, recorded=True)
    def test_57_error_file_of_the_launcher(self):
        for launcher in self.launchers():
            job, _ = self.failed(launcher, DECORATED, env={
                "PYTHON_EXEC": launcher.python, "TORCHELASTIC_ERROR_FILE": "root.json"})
            content = json.loads(job.text("root.json"))["message"]
            self.assertEqual(("RuntimeError: out of cheese", 1), (content["message"], content["errorCode"]))

    @check(58, recorded=True)
    def test_58_plain_error_file(self):
        body = PLAIN_FILE.format(text='{"message":"m","timestamp":1}')
        for launcher in self.launchers():
            _, ended = self.failed(launcher, body)
            self.assertRegex(entries(ended.err)[0], r"traceback : m\n")

    @check(59, recorded=True, differs=Differs(37))
    def test_59_broken_error_file(self):
        body = PLAIN_FILE.format(text="{broken")
        for launcher in self.launchers():
            job, ended = self.failed(launcher, body)
            if job.ours:
                self.assertIn("Root Cause", ended.err)
                self.assertRegex(entries(ended.err)[0], r"exitcode  : 1 ")
            else:
                self.assertIn("JSONDecodeError", ended.err)

    @check(60, recorded=True, waits=True)
    def test_60_worker_that_ignores_term(self):
        """KILL comes when the 30 s between are over, not before."""
        body = ("if probe.rank == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprobe.tell()\n"
                "if probe.rank == 1: signal.sigwait({signal.SIGUSR1}); sys.exit(3)\nwhile True: signal.pause()\n")
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            node = job.start(["--nproc-per-node", 2, job.script(body)])
            told = job.await_workers(2, alive=[node])
            job.finish(told[1:])
            ended = job.end(node, 60 * jobs.SLOW)
            self.assertEqual(1, ended.status, ended.err)
            self.assertTrue(29 <= ended.took <= 45 * jobs.SLOW, ended.took)
            self.assertRegex(ended.err, r"rank      : 0 \(local_rank: 0\)\n *exitcode  : -9")

    @check(61, recorded=True)
    def test_61_third_attempt_succeeds(self):
        body = "probe.tell()\nsys.exit(0 if probe.attempt == 2 else 7)\n"
        for launcher in self.launchers():
            job, _ = self.failed(launcher, body, "--max-restarts", 2, status=0)
            self.assertEqual([0, 1, 2], [line["attempt"] for line in job.told()])

    @check(62, recorded=True, differs=Differs(1), unsteady=("nodes", "workers"))
    def test_62_gloo_in_each_attempt(self):
        """Ours recovers every time; torchrun's number is printed beside it."""
        for launcher in self.launchers():
            # A job of torchrun's that doesn't recover takes as long as we wait for it.
            times = 3 if not launcher.ours else 20 if WHOLE_RUN else 1
            held = 0
            for _ in range(times):
                job = self.job(launcher)
                node = job.start(["--standalone", "--nproc-per-node", 2, "--max-restarts", 2, job.script(GLOO_EACH_TIME)],
                                 env={"PYTHON_EXEC": launcher.python}, ahead=True)
                try:
                    held += job.end(node, 120 * jobs.SLOW).status == 0
                except jobs.TimelineError:
                    pass  # it hangs
                jobs.kill_tagged(job.tag)
            print(f"gloo in each attempt, {launcher.name}: {held} of {times} jobs succeeded", flush=True)
            if launcher.ours:
                self.assertEqual(times, held)

    @check(63, recorded=True)
    def test_63_spent_budget(self):
        for launcher in self.launchers():
            job, _ = self.failed(launcher, "probe.tell()\nsys.exit(7)\n", "--max-restarts", 1)
            self.assertEqual([0, 1], [line["attempt"] for line in job.told()])

    @check(64, recorded=True)
    def test_64_one_worker_is_done_early(self):
        for launcher in self.launchers():
            for last in (0, 5):
                job = self.job(launcher)
                job.private = True
                body = f"probe.tell()\nif probe.rank == 0: signal.sigwait({{signal.SIGUSR1}}); sys.exit({last})\n"
                node = job.start(["--nproc-per-node", 2, job.script(body)])
                told = job.await_workers(2, alive=[node])
                early = os.pidfd_open(told[1]["pid"]) if os.path.exists(f"/proc/{told[1]['pid']}") else None
                if early is not None:
                    jobs.wait_readable(early, launcher.patience)
                    os.close(early)
                job.finish(told[:1])
                ended = job.end(node)
                self.assertEqual(1 if last else 0, ended.status, ended.err)
                if last:
                    self.assertIn("<NO_OTHER_FAILURES>", ended.err)
                    self.assertRegex(entries(ended.err)[0], r"exitcode  : 5 ")

    @check(65, recorded=True, differs=Differs(why="said before anything is started, instead of by Python's status 2"))
    def test_65_missing_script(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            ended = job.run(["missing.py"])
            self.assertEqual(1, ended.status)
            self.assertIn("missing.py", ended.err)
            self.assertTrue(job.ours or "exitcode  : 2 " in ended.err, ended.err)


if __name__ == "__main__":
    contract.main()
