#!/usr/bin/env python3
"""Steps of scripts that mark nothing (docs/PROGRESS.md, --mark auto), with torch as people have it."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, ROOT, SLOW, TORCH_PYTHON, BedTestCase, free_port, torch_ahead, torch_is_there  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "unmodified_worker.py")
COUNTED, TRAIN = 7, 2
AHEAD = torch_ahead("torch.nn.parallel", "torch.utils.data", "torch._dynamo")


# A rank that isn't alone trains long enough to be looked at, and forks.
ALONE = """
import mmap, os, select, sys, threading, time
if os.environ["RANK"] != "0":
    sys.exit()
import torch
with open(os.environ["DDPRUN_PROGRESS"], "rb") as file:
    page = memoryview(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)).cast("Q")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
optimizer.step()
until = time.monotonic() + PATIENCE
while page[49] == 0 and time.monotonic() < until:
    optimizer.step()
    select.select([], [], [], 0.01)
pid = os.fork()
if pid == 0:
    sys.exit(0)
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
os.write(1, f"threads {len(threading.enumerate())}, child ended with {ended}\\n".encode())
os.write(1, f"looked {page[49] > 0}\\n".encode())
"""


class MarksTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        if not torch_is_there():
            self.skipTest("there is no torch")
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON

    def start(self, kind, *options, nproc=1, steps=12, script=WORKER, env=None):
        return self.bed.run("agent", ["--standalone", "--nproc_per_node", nproc, *options, "--event_log", self.bed.events.path,
                                      script, self.bed.journal.path, kind, steps], env=env)

    def trained(self, kind, *options, nproc=1, **more):
        """The workers' lines, once they have taken their steps; then they end well."""
        agent = self.start(kind, *options, nproc=nproc, **more)
        workers = self.bed.workers(1, nproc, timeout=60 * SLOW, alive=[agent])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        return workers

    def check(self, kind, phase, step, *options, **more):
        for worker in self.trained(kind, *options, **more):
            self.assertEqual((phase, step), (worker["phase"], worker["step"]))
            self.assertEqual(phase == COUNTED, worker["timed"])


class Counted(MarksTestCase):
    def test_a_plain_script(self):
        self.check("plain", COUNTED, 12, nproc=2)

    def test_twin_with_mark_off(self):
        self.check("plain", 0, 0, "--mark", "off")

    def test_each_way_to_train(self):
        """One after the other in a job, each in a worker that is forked from one import."""
        ways = {"accumulate": (COUNTED, 12), "two": (COUNTED, 12), "loader": (COUNTED, 12), "forked": (COUNTED, 12),
                "compiled": (COUNTED, 12), "own": (TRAIN, 1011), "late": (TRAIN, 1011)}
        agent = self.start(",".join(ways), "--max_restarts", len(ways) - 1, "--restart_backoff", 0, *AHEAD)
        for generation, (way, (phase, step)) in enumerate(ways.items(), 1):
            workers = self.bed.workers(generation, 1, timeout=60 * SLOW, alive=[agent])
            with self.subTest(way):
                self.assertEqual((phase, step), (workers[0]["phase"], workers[0]["step"]))
                if way != "late":  # three of its steps were counted
                    self.assertEqual(phase == COUNTED, workers[0]["timed"])
            self.bed.signal_workers(workers, signal.SIGKILL if generation < len(ways) else signal.SIGUSR1)
        self.assert_status(0, agent)

    def test_a_compiled_optimizer_whose_worker_writes_down_its_imports(self):
        self.check("compiled", COUNTED, 12, "--warm", "on")

    def test_warm_starts(self):
        agent = self.start("plain", "--warm", "on", "--warm_memory", "50%", "--max_restarts", 1)
        first = self.bed.workers(1, 1, timeout=60 * SLOW, alive=[agent])
        self.bed.event("warm_ready", timeout=60 * SLOW, alive=[agent])
        self.bed.signal_workers(first, signal.SIGKILL)
        second = self.bed.workers(2, 1, timeout=60 * SLOW, alive=[agent])
        self.assertTrue(self.bed.event("worker_started", generation=2)["warm"])
        self.assertEqual([(COUNTED, 12)] * 2, [(w["phase"], w["step"]) for w in first + second])
        for name in ("PYTHONPATH", "variables", "sitecustomize"):
            self.assertEqual(first[0]["seen"][name], second[0]["seen"][name], name)
        self.bed.finish(second)
        self.assert_status(0, agent)


class Unseen(MarksTestCase):
    def seen(self, env=None):
        agent = self.start("bare", env=env)
        self.assert_status(0, agent)
        self.bed.follower.refresh()
        return self.bed.journal.find("bare")[0]["seen"]

    def test_a_script_sees_nothing_of_it(self):
        seen = self.seen()
        self.assertEqual([], seen["variables"])
        self.assertIsNone(seen["PYTHONPATH"])
        # Debian's interpreter has one of its own.
        asked = "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', None))"
        own = subprocess.run([TORCH_PYTHON, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
        self.assertEqual(own, str(seen["sitecustomize"]))
        self.assertEqual([], [entry for entry in seen["path"] if "ddprun" in entry and "marks" in entry])

    def test_the_users_own_path_and_sitecustomize_stay(self):
        os.mkdir(self.bed.path("modules"))
        own = self.bed.write("modules/sitecustomize.py", "")
        seen = self.seen({"PYTHONPATH": self.bed.path("modules")})
        self.assertEqual((self.bed.path("modules"), own), (seen["PYTHONPATH"], seen["sitecustomize"]))

    def test_the_thread_beside_the_training_keeps_nobody(self):
        """The thread is none of threading's, a forked child doesn't wait for it, and the interpreter ends as usual."""
        script = self.bed.write("alone.py", ALONE.replace("PATIENCE", str(PATIENCE)))
        agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, script])
        self.assert_status(0, agent, timeout=60 * SLOW)
        self.assertIn("threads 1, child ended with 0\n", agent.text())
        self.assertIn("looked True\n", agent.text())

    def test_a_script_without_torch_imports_nothing_for_it(self):
        script = self.bed.write("bare.py", "import sys\nprint('loaded', sorted({'torch', 'mmap'} & set(sys.modules)))\n")
        agent = self.bed.run("agent", ["--standalone", script])
        self.assert_status(0, agent)
        self.assertIn("loaded []", agent.text())

    def test_an_interpreter_that_looks_at_no_environment_runs_as_ever(self):
        isolated = self.bed.write("python", f"#!/bin/sh\nexec {TORCH_PYTHON} -I \"$@\"\n", 0o755)
        script = self.bed.write("bare.py", "import sys\nprint('isolated', sys.flags.isolated)\n")
        agent = self.bed.run("agent", ["--standalone", script], env={"PYTHON_EXEC": isolated})
        self.assert_status(0, agent)
        self.assertIn("isolated 1", agent.text())


class Shown(MarksTestCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def status(self):
        run = subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--json"], capture_output=True,
                             text=True, check=False)
        return json.loads(run.stdout)["jobs"][0] if run.returncode == 0 else None

    def test_status_and_ledger_have_the_steps(self):
        agent = self.bed.run("agent", ["--nnodes", 1, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_id", "job7",
                                       "--rdzv_endpoint", f"127.0.0.1:{self.port}", *AHEAD, "--event_log",
                                       self.bed.events.path, WORKER, self.bed.journal.path, "plain", 12])
        workers = self.bed.workers(1, 2, timeout=60 * SLOW, alive=[agent])

        asked = 0

        def answered():
            return len(self.bed.journal.find("more")) == 2 * asked

        def told():
            nonlocal asked
            if not answered():  # a worker with both signals takes the last one first, and its peer would wait for it
                return False
            job = self.status()
            found = [(w["phase"], int(w["step"])) for node in job["nodes"] for w in node["workers"]] if job else []
            if [phase for phase, step in found if step >= 12] == ["train"] * 2:
                return True
            asked += 1
            self.bed.signal_workers(workers, signal.SIGUSR2)  # they write a line, at which this is asked again
            return False
        self.bed.wait(told, "steps in the status", alive=[agent])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        ledger = self.bed.event("ledger")
        self.assertGreater(int(ledger["training_ms"]), 0)
        self.assertGreater(int(ledger["start_up_ms"]), 0)
        self.assertNotIn("unmarked_ms", ledger)


if __name__ == "__main__":
    unittest.main(verbosity=2)
