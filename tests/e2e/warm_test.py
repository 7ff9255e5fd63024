#!/usr/bin/env python3
"""--warm on: workers that are forked from an interpreter which has imported what they import."""

import os
import random
import select
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import PATIENCE, ROOT, SLOW, TORCH_PYTHON, BedTestCase, free_port, torch_is_there  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402

SEED = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
KILLS = 1000 if os.environ.get("DDPRUN_TEST_WHOLE") == "1" else 30
# A process in a small memory cgroup that reads a file larger than that again and again, until its input ends: it stands
# still for every page.
THRASH = """
import os, select, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.unlink(sys.argv[1])
for _ in range(96):
    os.write(file, os.urandom(1 << 20))
os.fsync(file)
while not select.select([0], [], [], 0)[0]:
    for megabyte in range(96):
        os.pread(file, 1 << 20, megabyte << 20)
"""

OBSERVING_WORKER = os.path.join(ROOT, "tests", "support", "observing_worker.py")

TRAINING = """
import json, os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # before there are threads
os.environ["WARM_TEST_SAME"] = "same"
os.environ["WARM_TEST_OWN"] = "of rank " + os.environ["RANK"]
import multiprocessing, random
import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": "worker", "rank": dist.get_rank(),
        "generation": int(os.environ["DDPRUN_GENERATION"]), "world": dist.get_world_size(), "parent": os.getppid(),
        "threads": torch.get_num_threads(), "seed": torch.initial_seed(), "cuda": torch.cuda.is_initialized(),
        "numpy": numpy.random.rand(), "random": random.random(),
        "authkey": multiprocessing.process.current_process().authkey.hex()}
with open(sys.argv[1], "a") as journal:
    journal.write(json.dumps(line) + "\\n")
signal.sigwait([signal.SIGUSR1])
dist.destroy_process_group()
os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends
"""


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class WarmTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment["XDG_CACHE_HOME"] = self.bed.path("cache")
        os.mkdir(self.bed.path("modules"))
        self.bed.environment["PYTHONPATH"] = self.bed.path("modules")

    def module(self, name, text):
        self.bed.write(os.path.join("modules", name + ".py"), text)

    def ready(self, count=1, **options):
        return self.bed.event("warm_ready", count=count, **options)

    def starts(self, generation):
        self.bed.follower.refresh()
        return [line.get("warm") for line in self.bed.events.find("worker_started", generation=generation)]

    def restart(self, agent, generation, count):
        """Kills the last of a generation's workers; returns those of the next one."""
        workers = self.bed.workers(generation, count, alive=[agent])
        os.kill(workers[-1]["pid"], signal.SIGKILL)
        return self.bed.workers(generation + 1, count, alive=[agent])

    def children(self):
        """Of the keeper; zombies aside."""
        keeper = self.bed.event("agent_start")["keeper"]
        with open(f"/proc/{keeper}/task/{keeper}/children", encoding="ascii") as children:
            return [pid for pid in map(int, children.read().split()) if state_of(pid) not in "ZX"]

    def parked(self):
        """The process that waits: the keeper's child that is no worker."""
        self.bed.follower.refresh()
        workers = {line["worker_pid"] for line in self.bed.events.find("worker_started")}
        return next(pid for pid in self.children() if pid not in workers)

    def preloading(self, *modules, nproc=2, options=(), worker=("wait",)):
        return self.bed.agent("agent", ["--standalone", "--nproc_per_node", nproc, "--max_restarts", 9, "--warm", "on",
                                        "--preload", ",".join(modules), *options], worker)


class Preloaded(WarmTestCase):
    """Modules that are named by hand."""

    def test_workers_and_their_successors_are_forked(self):
        agent = self.preloading("json", "decimal")
        keeper = self.bed.event("agent_start")["keeper"]
        workers = self.bed.workers(1, 2, alive=[agent])
        for generation in (1, 2, 3):
            self.assertEqual([True, True], self.starts(generation))
            for worker in workers:
                with open(f"/proc/{worker['pid']}/stat", encoding="ascii") as stat:
                    self.assertEqual(keeper, int(stat.read().rpartition(")")[2].split()[1]))
            workers = self.restart(agent, generation, 2)
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_twin_that_is_cold(self):
        agent = self.bed.agent("agent", ["--standalone", "--nproc_per_node", 2, "--max_restarts", 9])
        workers = self.restart(agent, 1, 2)
        self.bed.follower.refresh()
        self.assertNotIn("warm", self.bed.events.find("worker_started")[0])
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def observe(self, name, *options):
        agent = self.bed.run(name, ["--standalone", "--nproc_per_node", 2, *options, "--event_log", self.bed.events.path,
                                    OBSERVING_WORKER, self.bed.path(f"{name}.jsonl")])
        journal = self.bed.follower.follow(self.bed.path(f"{name}.jsonl"))
        self.bed.wait(lambda: len(journal.find("worker")) == 2, "two workers", alive=[agent])
        workers = sorted(journal.find("worker"), key=lambda line: line["rank"])
        for worker in workers:
            worker["seen"]["argv"] = worker["seen"]["orig_argv"] = worker["seen"]["cmdline"] = ""
        self.bed.finish(workers)
        self.assert_status(0, agent)
        return [worker["seen"] for worker in workers]

    def check_same(self, *options):
        cold = self.observe("cold", *options)
        warm = self.observe("warm", *options, "--warm", "on", "--preload", "decimal,logging")
        self.assertEqual([True, True], self.starts(1)[-2:])
        for one, other in zip(cold, warm):
            for name, seen in one.items():
                self.assertEqual(seen, other[name], name)

    def test_a_worker_sees_no_difference(self):
        self.check_same()

    def test_a_worker_whose_output_goes_to_files_sees_no_difference(self):
        self.check_same("--redirects", "3", "--log_dir", self.bed.path("logs"))

    def test_what_imports_print_every_worker_prints(self):
        self.module("talking", "import sys\nprint('hello from an import')\nprint('and from stderr', file=sys.stderr)\n")
        agent = self.preloading("talking", options=["--prefix_output"])
        self.bed.finish(self.bed.workers(1, 2, alive=[agent]))
        self.assert_status(0, agent)
        for rank in (0, 1):
            for line in ("hello from an import", "and from stderr"):
                self.assertEqual(1, agent.text().count(f"[default{rank}]:{line}"), agent.text())

    def test_the_users_own_sitecustomize_runs_in_each_worker(self):
        self.module("sitecustomize", "import os\nos.environ['SITE'] = os.environ.get('RANK', 'parked')\n")
        agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--warm", "on", "--preload", "decimal",
                                       "--event_log", self.bed.events.path, "--no_python", "--", "true"])
        self.assert_status(0, agent)
        self.assertIn("workers start cold: they run a program of their own", agent.text())
        script = self.bed.write("site.py", "import os, sys\nprint('site', os.environ['SITE'], 'sitecustomize' in sys.modules)\n")
        agent = self.bed.run("second", ["--standalone", "--nproc_per_node", 2, "--warm", "on", "--preload", "decimal",
                                        "--event_log", self.bed.events.path, script])
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(1)[-2:])
        for rank in (0, 1):
            self.assertIn(f"site {rank} True", agent.text())


class Refusals(WarmTestCase):
    """Modules that can't be imported before it is known who imports them."""

    def check(self, text, why):
        self.module("spoilt", text)
        agent = self.preloading("spoilt", "decimal")
        refused = self.bed.event("warm_refused", alive=[agent])
        self.assertEqual("spoilt", refused["module"])
        self.assertIn(why, refused["why"])
        self.ready(alive=[agent])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))

    def test_one_that_reads_the_rank(self):
        self.check("import os\nRANK = os.environ.get('LOCAL_RANK')\n", "reads LOCAL_RANK when it is imported")

    def test_one_that_keeps_a_file_open(self):
        self.check("FILE = open('/dev/zero')\n", "leaves the descriptor of /dev/zero open")

    def test_one_that_starts_a_thread(self):
        self.check("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
                   "starts a thread")


class Failures(WarmTestCase):
    """Whatever happens to the interpreter that waits, workers start."""

    def test_it_is_killed_and_parked_again(self):
        agent = self.preloading("decimal")
        self.bed.workers(1, 2, alive=[agent])
        os.kill(self.parked(), signal.SIGKILL)
        self.assertEqual("was killed by SIGKILL", self.bed.event("warm_lost", alive=[agent])["how"])
        self.ready(count=2, alive=[agent])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))

    def test_it_dies_again_and_again(self):
        self.module("deadly", "import os\nos.kill(os.getpid(), 9)\n")
        agent = self.preloading("deadly")
        self.assertIn("was killed by SIGKILL 4 times", self.bed.event("warm_off", alive=[agent])["why"])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([False, False], self.starts(2))
        self.assertIn("workers start cold from now on: ", agent.text())

    def test_a_job_ends_while_workers_wait_for_its_imports(self):
        fifo = self.bed.path("never")
        os.mkfifo(fifo)
        self.module("waiting", f"open({fifo!r}).read()\n")
        agent = self.preloading("waiting")
        self.bed.event("spawn", alive=[agent])
        agent.signal(signal.SIGTERM)
        agent.wait(5 * SLOW)  # the imports would be waited for a minute
        self.assertEqual([], self.starts(1))

    def test_it_goes_with_an_agent_that_is_killed(self):
        agent = self.preloading("decimal")
        self.bed.workers(1, 2, alive=[agent])
        parked = os.pidfd_open(self.parked())
        agent.signal(signal.SIGKILL)
        ended, _, _ = select.select([parked], [], [], 5 * SLOW)
        os.close(parked)
        self.assertTrue(ended)


class Memory(WarmTestCase):
    """What it holds is bounded, and it goes before anything else has to."""

    def test_one_that_holds_more_than_it_may_is_ended(self):
        agent = self.preloading("decimal", options=["--warm_memory", "1MiB"])
        self.assertIn("and --warm_memory allows 1.0 MiB", self.bed.event("warm_off", alive=[agent])["why"])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([False, False], self.starts(2))

    def test_twin_that_holds_what_it_may(self):
        agent = self.preloading("decimal", options=["--warm_memory", "1GiB"])
        self.assertLess(1 << 20, int(self.ready(alive=[agent])["bytes"]))
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))

    def test_none(self):
        agent = self.preloading("decimal", options=["--warm_memory", "0"])
        self.bed.finish(self.bed.workers(1, 2, alive=[agent]))
        self.assert_status(0, agent)
        self.assertIn("--warm_memory 0 leaves no interpreter ready", agent.text())


class Idle(WarmTestCase):
    """Beside training it imports with the processor time that nobody wants; workers never run like that."""

    def setUp(self):
        super().setUp()
        if subprocess.run([sys.executable, "-c", "import os\nbefore = os.sched_getscheduler(0)\nos.sched_setscheduler(0, 5, "
                           "os.sched_param(0))\nos.sched_setscheduler(0, before, os.sched_param(0))"],
                          check=False, capture_output=True).returncode != 0:
            self.skipTest("from SCHED_IDLE there is no way back for this user (sched(7), RLIMIT_NICE)")
        self.module("looking", f"import os\nwith open({self.bed.path('policies')!r}, 'a') as sink:\n"
                    "    sink.write(str(os.sched_getscheduler(0)))\n")

    def test_policies(self):
        agent = self.preloading("looking")
        workers = self.bed.workers(1, 2, alive=[agent])
        os.kill(self.parked(), signal.SIGKILL)
        self.ready(count=2, alive=[agent])
        with open(self.bed.path("policies"), encoding="ascii") as policies:
            self.assertEqual(f"{os.SCHED_OTHER}{os.SCHED_IDLE}", policies.read(), "beside the rendezvous, and beside workers")
        self.assertEqual(os.SCHED_OTHER, os.sched_getscheduler(self.parked()))
        workers = self.restart(agent, 1, 2)
        self.assertEqual([True, True], self.starts(2))
        for worker in workers:
            self.assertEqual(os.SCHED_OTHER, os.sched_getscheduler(worker["pid"]))
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_a_worker_that_waits_for_it_gives_it_back_its_priority(self):
        agent = self.preloading("looking")
        workers = self.bed.workers(1, 2, alive=[agent])
        fifo = self.bed.path("held")
        os.mkfifo(fifo)
        self.module("looking", f"open({fifo!r}).read()\n")
        os.kill(self.parked(), signal.SIGKILL)
        self.bed.event("warm_lost", alive=[agent])
        with open(fifo, "w", encoding="ascii"):  # opens when the import does
            self.assertEqual(os.SCHED_IDLE, os.sched_getscheduler(self.parked()))
            self.bed.signal_workers(workers[1:], signal.SIGKILL)
            self.bed.event("spawn", generation=2, alive=[agent])
            parked = self.parked()
            for _ in range(int(100 * PATIENCE)):
                if os.sched_getscheduler(parked) == os.SCHED_OTHER or select.select([agent.pidfd], [], [], 0.01)[0]:
                    break
            self.assertEqual(os.SCHED_OTHER, os.sched_getscheduler(parked))
        self.bed.finish(self.bed.workers(2, 2, alive=[agent]))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))


class Kills(WarmTestCase):
    """Whoever is killed at whatever moment: no start hangs, nobody is left, and nothing grows."""

    def sizes(self, agent):
        """KiB and descriptors of the agent and of its keeper."""
        seen = {}
        for name, pid in (("agent", agent.pid), ("keeper", self.bed.event("agent_start")["keeper"])):
            with open(f"/proc/{pid}/status", encoding="ascii") as status:
                seen[name] = next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
            seen[name + " descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        return seen

    def newest(self):
        return max((int(line["generation"]) for line in self.bed.events.find("spawn")), default=0)

    def whole(self, agent):
        """The workers of the newest generation, when all of them are there and none was killed."""
        def there():
            lines = self.bed.journal.find("worker", generation=self.newest())
            return len(lines) == 2 and self.killed.isdisjoint(line["pid"] for line in lines) and lines
        return self.bed.wait(there, "a whole generation", alive=[agent])

    def test_at_random_moments(self):
        rng = random.Random(SEED)
        self.killed = set()
        agent = self.preloading("decimal", "logging", options=["--max_restarts", 2 * KILLS, "--restart_backoff", 0])
        self.whole(agent)
        sizes = {}
        for count in range(KILLS):
            if rng.random() < 0.1:
                self.whole(agent)  # no fork is on its way that could be taken for it
                ready = len(self.bed.events.find("warm_ready"))
                os.kill(self.parked(), signal.SIGKILL)
                self.ready(count=ready + 1, alive=[agent])
            started = self.bed.events.find("worker_started")[-2:]
            victim = rng.choice(started)["worker_pid"]
            self.bed.signal_workers([{"pid": victim}], signal.SIGKILL)
            self.killed.add(victim)
            select.select([agent.pidfd], [], [], rng.random() * 0.08)  # a moment in the middle of the restart, or after it
            self.bed.follower.refresh()
            if rng.random() < 0.5 or count % 10 == 9:
                self.whole(agent)
            if count == KILLS // 3:
                sizes = self.sizes(agent)
        lines = self.whole(agent)
        self.assertEqual(3, len(self.children()), f"two workers, and one that waits; seed {SEED}")
        for name, size in self.sizes(agent).items():
            self.assertLess(size, sizes[name] + (4 if "descriptors" in name else 2048), f"{name} grows; seed {SEED}")
        warm = [line["warm"] for line in self.bed.events.find("worker_started")]
        self.assertGreater(sum(warm), 0.8 * len(warm), f"seed {SEED}")
        self.bed.finish(lines)
        self.assert_status(0, agent)


@unittest.skipUnless(torch_is_there(), "torch is not installed")
class Learned(WarmTestCase):
    """What the first workers import is what the next ones have."""

    def setUp(self):
        super().setUp()
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON

    def job(self, name, script):
        return self.bed.run(name, ["--standalone", "--nproc_per_node", 2, "--max_restarts", 3, "--warm", "on",
                                   "--event_log", self.bed.events.path, script, self.bed.journal.path])

    def test_restarts_and_the_next_job(self):
        script = self.bed.write("train.py", TRAINING)
        agent = self.job("first", script)
        cold = self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        warm = self.restart(agent, 1, 2)
        self.bed.finish(warm)
        self.assert_status(0, agent)
        self.assertEqual(([False, False], [True, True]), (self.starts(1), self.starts(2)))
        for one, other in zip(cold, warm):
            for field in ("rank", "threads", "cuda", "parent"):
                self.assertEqual(one[field], other[field], field)
        # Each process draws seeds of its own when it imports these.
        for field in ("seed", "numpy", "random", "authkey"):
            self.assertEqual(4, len({worker[field] for worker in cold + warm}), field)
        self.check_kept()
        self.check_next_job(script, warm[-1]["t"])

    def check_kept(self):
        folder = self.bed.path("cache/ddprun/warm")
        name, = os.listdir(folder)
        self.assertTrue(name.startswith("train.py-"))
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertIn("module torch.nn.parallel", lines)
        self.assertIn("set WARM_TEST_SAME=same", lines)
        self.assertIn("varies WARM_TEST_OWN", lines)
        self.assertLess(lines.index("set WARM_TEST_SAME=same"), lines.index("module torch.nn.parallel"))

    def check_next_job(self, script, after):
        agent = self.job("second", script)
        lines = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", after)) == 2 and found, "two workers",
                              alive=[agent])
        self.bed.finish(lines)
        self.assert_status(0, agent)
        self.assertEqual([True, True], [line["warm"] for line in self.bed.events.find("worker_started", after)])


@unittest.skipUnless(torch_is_there(), "torch is not installed")
class Spare(WarmTestCase):
    """A node that waits for another one to be lost has an interpreter that has learned from those that train."""

    def agent_of(self, name, cache):
        if name == "host":
            self.port = free_port()
        options = ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_id", "job",
                   "--rdzv_conf", f"is_host={int(name == 'host')}", "--max_restarts", 3, "--warm", "on"]
        return self.bed.run(name, [*options, "--event_log", self.bed.events.path, self.script, self.bed.journal.path],
                            env={"PYTHON_EXEC": TORCH_PYTHON, "XDG_CACHE_HOME": self.bed.path(cache)})

    def lose_node(self, cache):
        """How the workers of the second generation started, by agent, when the spare's cache is this one."""
        self.script = self.bed.write("train.py", TRAINING)
        agents = [self.agent_of(name, "cache") for name in ("host", "lost")]
        self.bed.workers(1, 2, alive=agents)
        spare = self.agent_of("spare", cache)
        self.bed.event("standby", alive=[spare])
        self.ready(count=2 + (cache == "cache"), alive=[spare])
        agents[1].signal(signal.SIGKILL)
        workers = self.bed.workers(2, 2, alive=[agents[0], spare])
        self.bed.finish(workers)
        self.assert_status(0, agents[0])
        self.assert_status(0, spare)
        self.bed.follower.refresh()
        return {line["who"].rpartition("#")[2] == str(spare.pid): line["warm"]
                for line in self.bed.events.find("worker_started", generation=2)}

    def test_it_steps_in_warm(self):
        self.assertEqual({False: True, True: True}, self.lose_node("cache"))

    def test_twin_with_a_home_of_its_own(self):
        self.assertEqual({False: True, True: False}, self.lose_node("other"))
        self.assertEqual([], self.bed.events.find("warm_kept"))


class WhenMemoryIsShort(WarmTestCase):
    """The last one by its name: the kernel tells of the pressure for some seconds more."""

    def test_it_goes_when_memory_is_short_and_comes_back_with_the_next_workers(self):
        if not os.access("/proc/pressure/memory", os.W_OK):
            self.skipTest("this kernel tells nobody that memory is short (/proc/pressure/memory)")
        cgroup = MemoryCgroup(24 << 20)
        self.addCleanup(cgroup.close)
        agent = self.preloading("decimal")
        workers = self.bed.workers(1, 2, alive=[agent])
        parked = os.pidfd_open(self.parked())
        self.addCleanup(os.close, parked)
        self.assertFalse(select.select([parked], [], [], 0)[0])
        # It is these that make the difference: until now it stayed.
        thrash = [subprocess.Popen([sys.executable, "-c", THRASH, self.bed.path(f"thrash{i}")], stdin=subprocess.PIPE,
                                   preexec_fn=cgroup.enter) for i in range(2)]
        try:
            self.assertIn("/proc/pressure/memory", self.bed.event("warm_short", alive=[agent])["why"])
            self.assertTrue(select.select([parked], [], [], 5 * SLOW)[0])
        finally:
            for process in thrash:
                process.stdin.close()
                process.wait()
        self.bed.signal_workers(workers[1:], signal.SIGKILL)
        self.ready(count=2, alive=[agent])
        self.bed.finish(self.bed.workers(2, 2, alive=[agent]))
        self.assert_status(0, agent)


if __name__ == "__main__":
    unittest.main()
