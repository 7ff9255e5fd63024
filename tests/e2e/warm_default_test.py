#!/usr/bin/env python3
"""Warm starts that nobody has asked for: a restart is quicker, a start never later, and nothing is said."""

import os
import resource
import shutil
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, TORCH_PYTHON, torch_is_there  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402
from warm_case import TRAINING, WarmTestCase  # noqa: E402

# A module of a library with a thread of its own that sleeps, as pyarrow's are.
SLEEPER = """
import ctypes
libc = ctypes.CDLL(None)
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
"""
# Reports how far it is, and crashes in the generations that its arguments name.
CRASHING = TRAINING.replace("signal.sigwait", """
if dist.get_rank() == 1 and os.environ["DDPRUN_GENERATION"] in sys.argv[2:]:
    os.kill(os.getpid(), signal.SIGSEGV)
signal.sigwait""")
# Scripts whose optimizer is none of torch's.
BY_HAND = TRAINING.replace("optimizer.step()", "").replace("optimizer = torch.optim.SGD(model.parameters(), 0.1)", "")


def peak(pid):
    """The most address space that a process has had, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmPeak:"))


@unittest.skipUnless(torch_is_there(), "torch is not installed")
class DefaultTestCase(WarmTestCase):
    def setUp(self):
        super().setUp()
        installed = self.bed.path("modules/lib/site-packages")
        os.makedirs(installed)
        self.bed.environment.update(PYTHON_EXEC=TORCH_PYTHON, PYTHONPATH=installed)

    def job(self, text, *options, name="agent", arguments=(), **process):
        script = self.bed.write("train.py", text)
        return self.bed.run(name, ["--standalone", "--nproc_per_node", 2, "--max_restarts", 9, *options, "--event_log",
                                   self.bed.events.path, script, self.bed.journal.path, *arguments], **process)

    def warm(self, generation):
        return [bool(warm) for warm in self.starts(generation)]

    def kept(self):
        folder = self.bed.path("cache/ddprun/warm")
        return os.listdir(folder) if os.path.isdir(folder) else []

    def end(self, agent, workers, quiet=True):
        self.bed.finish(workers)
        self.assert_status(0, agent)
        if not quiet:
            return
        self.assertNotIn("warm", agent.text())
        self.assertNotIn("cold", agent.text())


class Default(DefaultTestCase):
    def test_a_restart_is_a_fork(self):
        agent = self.job(TRAINING)
        self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual(([False, False], [True, True]), (self.warm(1), self.warm(2)))
        self.assertEqual(1, len(self.kept()))

    def test_twin_that_does_not_want_it(self):
        agent = self.job(TRAINING, "--warm", "off")
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual([False, False], self.warm(2))
        self.assertEqual([], self.kept())

    def test_a_job_that_is_never_restarted_learns_nothing(self):
        agent = self.job(TRAINING, "--max_restarts", 0)
        self.end(agent, self.bed.workers(1, 2, alive=[agent]))
        self.assertEqual([], self.kept())

    def test_the_first_start_waits_for_nothing(self):
        """What the job before has learned is imported beside training, not before it."""
        for name in ("first", "second"):
            self.bed.follower.refresh()
            count = len(self.bed.events.find("warm_ready"))
            since = max((line["t"] for line in self.bed.journal.find("worker")), default=0)
            agent = self.job(TRAINING, name=name)
            workers = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", since)) == 2 and found, "two workers",
                                    alive=[agent])
            self.ready(count=count + 1, alive=[agent])
            order = [line["event"] for line in self.bed.events.find() if line["event"] in ("worker_started", "warm_ready")]
            self.assertEqual(["worker_started", "worker_started", "warm_ready"], order[-3:])
            self.end(agent, workers)

    def test_ddprun_itself_is_imported_ahead(self):
        shutil.copytree(os.path.join(ROOT, "python", "ddprun"), self.bed.path("modules/lib/site-packages/ddprun"))
        agent = self.job("import sys\nahead = 'ddprun.elastic' in sys.modules\nfrom ddprun import elastic\n" + TRAINING.replace(
            '"random":', '"ahead": ahead, "random":'))
        self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        workers = self.restart(agent, 1, 2)
        self.assertEqual([True, True], [worker["ahead"] for worker in workers])
        self.assertEqual([], self.bed.events.find("warm_refused"))
        self.end(agent, workers)

    def put_aside(self):
        """A job whose imports ahead never end, after a start that was quicker without them."""
        fifo = self.bed.path("never")
        os.mkfifo(fifo)
        self.module("lib/site-packages/slow", "import sys\nif not hasattr(sys.modules['__main__'], '__file__'):  # ahead\n"
                    f"    open({fifo!r}).read()\n")
        agent = self.job(TRAINING.replace("import numpy\n", "import numpy, slow\n"))
        workers = self.bed.workers(1, 2, alive=[agent])
        self.bed.event("warm_learned", alive=[agent])
        os.kill(workers[1]["pid"], signal.SIGKILL)
        self.bed.event("warm_aside", alive=[agent])
        return agent

    def test_faults_in_a_row_cost_one_load(self):
        agent = self.put_aside()
        os.kill(self.bed.workers(2, 2, alive=[agent])[1]["pid"], signal.SIGKILL)
        self.end(agent, self.bed.workers(3, 2, alive=[agent]))
        self.assertEqual(1, len(self.bed.events.find("warm_learned")))
        # On a busy machine the second generation may outlive the first by half before its first step: imports begin anew.
        lives = [end["t"] - begin["t"] for begin, end in zip(self.bed.events.find("spawn"), self.bed.events.find("stop_begin"))]
        self.assertIn(len(self.bed.events.find("warm_aside")), (1,) if lives[1] < 1.4 * lives[0] else (1, 2), lives)

    def test_a_start_does_not_wait_for_imports_that_take_longer_than_its_own(self):
        agent = self.put_aside()
        self.module("lib/site-packages/slow", "")
        self.bed.workers(2, 2, alive=[agent])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 2, 2))
        self.assertEqual(([False] * 2, [True] * 2), (self.warm(2), self.warm(3)))

    def test_a_script_whose_optimizer_is_none_of_torchs(self):
        agent = self.job(BY_HAND)
        self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual([True, True], self.warm(2))


class LittleRoom(DefaultTestCase):
    """Jobs that have no more than their workers need start, and restart, as without warm starts."""

    def workers_need(self):
        """(memory of two workers together, address space of the larger one), in bytes."""
        cgroup = self.cgroup("roomy", 16 << 30)
        journal = self.bed.path("roomy.jsonl")
        script = self.bed.write("roomy.py", TRAINING)
        agent = self.bed.run("roomy", ["--standalone", "--nproc_per_node", 2, "--warm", "off", script, journal],
                             preexec_fn=cgroup.enter)
        lines = self.bed.follower.follow(journal)
        self.bed.wait(lambda: len(lines.find("worker")) == 2, "two workers", alive=[agent])
        workers = lines.find("worker")
        need = cgroup.held(), max(peak(worker["pid"]) for worker in workers)
        self.bed.finish(workers)
        self.assert_status(0, agent)
        return need

    def cgroup(self, name, limit):
        cgroup = MemoryCgroup(limit, name)
        self.addCleanup(cgroup.close)
        return cgroup

    def in_memory(self, part):
        """Whether the second workers are warm in a job that has `part` of the memory that its workers need."""
        limit = int(part * self.workers_need()[0])
        agent = self.job(TRAINING, preexec_fn=self.cgroup("job", limit).enter)
        self.bed.workers(1, 2, alive=[agent])
        self.bed.event("warm_short" if part < 1.3 else "warm_ready", alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))
        return self.warm(2)

    def test_a_fifth_more_memory_than_the_workers_need(self):
        self.assertEqual([False, False], self.in_memory(1.2))

    def test_twin_with_four_times_as_much(self):
        self.assertEqual([True, True], self.in_memory(4))

    def test_address_space_for_a_worker(self):
        """`ulimit -v` holds for each process by itself: for the parked interpreter and for the workers forked from it, too."""
        space = int(1.02 * self.workers_need()[1])
        agent = self.job(TRAINING, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)))
        self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))


class Threads(DefaultTestCase):
    """A library's threads that sleep are no reason to start cold."""

    def test_one_that_sleeps(self):
        self.module("lib/site-packages/sleeper", SLEEPER)
        agent = self.job(TRAINING.replace("import numpy\n", "import numpy, sleeper\n"))
        self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual([True, True], self.warm(2))
        self.assertEqual([], self.bed.events.find("warm_refused"))

    def test_twin_of_python(self):
        self.module("lib/site-packages/sleeper", "import threading\n"
                    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n")
        agent = self.job(TRAINING.replace("import numpy\n", "import numpy, sleeper\n"))
        self.bed.workers(1, 2, alive=[agent])
        self.assertEqual("sleeper", self.bed.event("warm_refused", alive=[agent])["module"])
        self.ready(alive=[agent])
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual([True, True], self.warm(2))

    def test_one_that_a_child_can_not_do_without(self):
        """The child that tries what workers do finds that they would hang."""
        self.module("lib/site-packages/pyarrow", SLEEPER + "\nimport os\nPARENT = os.getpid()\n"
                    "def array(values):\n    import signal\n    signal.pause()\n")
        agent = self.job(TRAINING.replace("import numpy\n", "import numpy, pyarrow\n"))
        self.bed.workers(1, 2, alive=[agent])
        self.assertIn("did not come to an end", self.bed.event("warm_off", alive=[agent])["why"])
        self.end(agent, self.restart(agent, 1, 2))
        self.assertEqual([False, False], self.warm(2))


class Crashes(DefaultTestCase):
    """A worker that crashes soon after its fork is started cold, until it is known whether it was the fork."""

    def run_with(self, *crashes):
        agent = self.job(CRASHING, arguments=crashes)
        workers = self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        os.kill(workers[1]["pid"], signal.SIGKILL)
        self.bed.event("warm_suspected", alive=[agent])  # the other one may not have come to speak
        return agent

    def test_the_fork_may_be_the_reason(self):
        agent = self.run_with("2")
        self.end(agent, self.restart(agent, 3, 2), quiet=False)
        self.assertIn("the next start is a cold one", agent.text())
        self.assertEqual([], self.bed.events.find("warm_off"))  # the cold one was killed too soon to show anything
        self.assertEqual(([True] * 2, [False] * 2, [False] * 2), (self.warm(2), self.warm(3), self.warm(4)))

    def test_twin_it_was_not(self):
        agent = self.run_with("2", "3")
        self.end(agent, self.restart(agent, 4, 2), quiet=False)
        self.assertEqual([], self.bed.events.find("warm_off"))
        self.assertEqual([True] * 2, self.warm(5))


if __name__ == "__main__":
    unittest.main()
