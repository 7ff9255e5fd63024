"""The fixture of the tests of warm starts."""

import os
import random
import select
import signal

from bed import FREED_MB, ROOT, BedTestCase
from timeline import state_of

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


class MemoryPressure:
    """The kernel reports when processes stood still for lack of memory for a tenth of two seconds, as it does to the agent."""

    FILE = "/proc/pressure/memory"

    def __init__(self):
        self._trigger = os.open(self.FILE, os.O_RDWR | os.O_NONBLOCK)
        os.write(self._trigger, b"some 200000 2000000\0")
        self._poll = select.poll()
        self._poll.register(self._trigger, select.POLLPRI)

    def wait(self, seconds):
        """False: it has reported nothing."""
        return bool(self._poll.poll(1000 * seconds))

    def close(self):
        os.close(self._trigger)


class WarmTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.forget_warm()
        os.mkdir(self.bed.path("modules"))
        self.bed.environment["PYTHONPATH"] = self.bed.path("modules")

    def module(self, name, text):
        self.bed.write(os.path.join("modules", name + ".py"), text)

    def ready(self, count=1, **options):
        return self.bed.event("warm_ready", count=count, **options)

    def starts(self, generation):
        """Whether each worker of the generation was warm. A worker may write its line before its agent has noted its start."""
        self.bed.follower.refresh()
        started = self.bed.events.find
        begun = self.bed.journal.find("worker", generation=generation)
        self.bed.wait(lambda: len(started("worker_started", generation=generation)) >= len(begun), "all starts")
        return [line.get("warm") for line in self.bed.events.find("worker_started", generation=generation)]

    def restart(self, agent, generation, count):
        """Kills the last of a generation's workers; returns those of the next one."""
        workers = self.bed.workers(generation, count, alive=[agent])
        os.kill(workers[-1]["pid"], signal.SIGKILL)
        return self.bed.workers(generation + 1, count, alive=[agent])

    def children(self):
        """The keeper's children, without zombies."""
        keeper = self.bed.event("agent_start")["keeper"]
        with open(f"/proc/{keeper}/task/{keeper}/children", encoding="ascii") as children:
            return [pid for pid in map(int, children.read().split()) if state_of(pid) not in (None, "Z", "X")]

    def parked(self):
        """The process that waits: the keeper's child that is no worker."""
        self.bed.follower.refresh()
        # The newest worker of each place: after a thousand kills its pid may be that of one that ended long ago.
        workers = {(line["pid"], line["local_rank"]): line["worker_pid"] for line in self.bed.events.find("worker_started")}
        return next(pid for pid in self.children() if pid not in workers.values())

    def preloading(self, *modules, nproc=2, options=(), worker=("wait",), **process):
        return self.bed.agent("agent", ["--standalone", "--nproc_per_node", nproc, "--max_restarts", 9, "--warm", "on",
                                        "--preload", ",".join(modules), *options], worker, **process)

    def observe(self, name, *options):
        """What two workers see of how they were started."""
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


class KilledAtRandom(WarmTestCase):
    """Whichever process is killed, at any moment: no start hangs, no process is left, and nothing grows."""

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
            newest = self.newest()
            lines = self.bed.journal.find("worker", generation=newest)
            return len(lines) == 2 and self.killed.isdisjoint((newest, line["pid"]) for line in lines) and lines
        return self.bed.wait(there, "a whole generation", alive=[agent])

    def check(self, start, seed, kills):
        """`start`: starts an agent of two workers with some options."""
        rng = random.Random(seed)
        self.killed = set()
        agent = start(["--max_restarts", 2 * kills, "--restart_backoff", 0])
        self.whole(agent)
        self.starts(1)
        self.ready(alive=[agent])
        sizes = {}
        for count in range(kills):
            if rng.random() < 0.1:
                self.whole(agent)  # no fork is on its way that could be taken for it
                ready = len(self.bed.events.find("warm_ready"))
                os.kill(self.parked(), signal.SIGKILL)
                self.ready(count=ready + 1, alive=[agent])
            started = self.bed.events.find("worker_started")[-2:]
            victim = rng.choice(started)
            self.bed.signal_workers([{"pid": victim["worker_pid"]}], signal.SIGKILL)
            # The pid with its generation: after a thousand kills a pid may come again.
            self.killed.add((int(victim["generation"]), victim["worker_pid"]))
            select.select([agent.pidfd], [], [], rng.random() * 0.08)  # a moment in the middle of the restart, or after it
            self.bed.follower.refresh()
            if rng.random() < 0.5 or count % 10 == 9:
                self.whole(agent)
            if count == kills // 3:
                self.whole(agent)
                sizes = self.sizes(agent)
        lines = self.whole(agent)
        self.assertEqual(3, len(self.children()), f"two workers, and one that waits; seed {seed}")
        more = {name: 4 if "descriptors" in name else 1024 * (2 + FREED_MB) for name in sizes}

        def grown():
            return {name: size for name, size in self.sizes(agent).items() if size >= sizes[name] + more[name]}
        for _ in range(100):  # what a start or an end has open for a moment goes; what has leaked stays
            if not grown():
                break
            select.select([agent.pidfd], [], [], 0.05)
        self.assertEqual({}, grown(), f"more than {sizes}; seed {seed}")
        warm = [line["warm"] for line in self.bed.events.find("worker_started")]
        self.assertGreater(sum(warm), 0.8 * len(warm), f"seed {seed}")
        self.bed.finish(lines)
        self.assert_status(0, agent)
