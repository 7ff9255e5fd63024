#!/usr/bin/env python3
"""Steps of scripts that mark nothing (docs/PROGRESS.md, --mark auto), with torch as people have it."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, TORCH_PYTHON, BedTestCase, free_port, torch_is_there  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "unmodified_worker.py")
COUNTED, TRAIN = 7, 2


# Two ranks that have nothing to do with each other train long enough to be looked at, and fork.
ALONE = """
import os, sys, threading, time
import torch
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
optimizer.step()
until = time.monotonic() + 1
while time.monotonic() < until:
    optimizer.step()
pid = os.fork()
if pid == 0:
    sys.exit(0)
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
page = memoryview(open(os.environ["DDPRUN_PROGRESS"], "rb").read(4096)).cast("Q")
os.write(1, f"threads {len(threading.enumerate())}, child ended with {ended}\\n".encode())
os.write(1, f"looked {page[49] > 0}\\n".encode())
"""


class MarksTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        if not torch_is_there():
            self.skipTest("there is no torch")
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON
        self.bed.environment["XDG_CACHE_HOME"] = self.bed.path("cache")

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

    def test_several_batches_a_step(self):
        self.check("accumulate", COUNTED, 12)

    def test_two_optimizers_that_take_turns_make_one_step(self):
        self.check("two", COUNTED, 12)

    def test_children_of_a_loader_count_nothing(self):
        self.check("loader", COUNTED, 12)

    def test_a_forked_child_counts_nothing(self):
        self.check("forked", COUNTED, 12)

    def test_a_compiled_optimizer(self):
        self.check("compiled", COUNTED, 12)

    def test_a_compiled_optimizer_whose_worker_writes_down_its_imports(self):
        self.check("compiled", COUNTED, 12, "--warm", "on")

    def test_a_program_that_marks_by_itself_wins(self):
        self.check("own", TRAIN, 1011)

    def test_one_that_begins_to_mark_late_wins_too(self):
        for worker in self.trained("late"):
            self.assertEqual((TRAIN, 1011), (worker["phase"], worker["step"]))

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
    def test_a_script_sees_nothing_of_it(self):
        seen = self.trained("plain")[0]["seen"]
        self.assertEqual([], seen["variables"])
        self.assertIsNone(seen["PYTHONPATH"])
        self.assertIsNone(seen["sitecustomize"])
        self.assertEqual([], [entry for entry in seen["path"] if "ddprun" in entry and "marks" in entry])

    def test_the_users_own_path_and_sitecustomize_stay(self):
        os.mkdir(self.bed.path("modules"))
        own = self.bed.write("modules/sitecustomize.py", "")
        seen = self.trained("plain", env={"PYTHONPATH": self.bed.path("modules")})[0]["seen"]
        self.assertEqual((self.bed.path("modules"), own), (seen["PYTHONPATH"], seen["sitecustomize"]))

    def test_the_thread_beside_the_training_keeps_nobody(self):
        """It is none of threading's, a forked child doesn't wait for it, and the interpreter ends as ever."""
        script = self.bed.write("alone.py", ALONE)
        agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, script])
        self.assert_status(0, agent, timeout=60 * SLOW)
        self.assertEqual(2, agent.text().count("threads 1, child ended with 0\n"), agent.text())
        self.assertEqual(2, agent.text().count("looked True\n"), agent.text())

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

    def node(self, rank):
        return self.bed.run(f"node{rank}", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_id", "job7", "--rdzv_endpoint",
                                            f"127.0.0.1:{self.port}", "--rdzv_conf", f"is_host={1 - rank}", "--event_log",
                                            self.bed.events.path, WORKER, self.bed.journal.path, "plain", 12])

    def status(self):
        run = subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--json"], capture_output=True,
                             text=True, check=False)
        return json.loads(run.stdout)["jobs"][0] if run.returncode == 0 else None

    def test_status_and_ledger_have_the_steps(self):
        nodes = [self.node(0), self.node(1)]
        workers = self.bed.workers(1, 2, timeout=60 * SLOW, alive=nodes)

        def told():
            job = self.status()
            found = [(w["phase"], int(w["step"])) for node in job["nodes"] for w in node["workers"]] if job else []
            if [phase for phase, step in found if step >= 12] == ["train"] * 2:
                return True
            self.bed.signal_workers(workers, signal.SIGUSR2)  # they write a line, at which this is asked again
            return False
        self.bed.wait(told, "steps in the status", alive=nodes)
        self.bed.finish(workers)
        for node in nodes:
            self.assert_status(0, node)
        ledger = self.bed.event("ledger")
        self.assertGreater(int(ledger["training_ms"]), 0)
        self.assertGreater(int(ledger["start_up_ms"]), 0)
        self.assertNotIn("unmarked_ms", ledger)


if __name__ == "__main__":
    unittest.main(verbosity=2)
