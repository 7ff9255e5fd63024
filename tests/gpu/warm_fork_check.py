#!/usr/bin/env python3
"""--warm on and a GPU: what waits to be forked holds nothing of it, whatever its modules ask, and each fork can use it."""

import mmap
import os
import signal
import sys
import unittest

from gpu_bed import DEVICE, HERE, ON_GPU, PATIENCE, GpuCase, figure
from side_by_side import Job
from timeline import state_of

sys.path.insert(0, str(HERE / "programs"))

from held import held  # noqa: E402

FRAMEWORKS = ("transformers.trainer", "pyarrow", "lightning", "pytorch_lightning", "accelerate")
# What modules do when they are imported. The last one's twin holds another device.
MODULES = {
    "asks_available": "import torch\nANSWER = torch.cuda.is_available()\n",
    "asks_count": "import torch\nANSWER = torch.cuda.device_count()\n",
    "takes_gpu": "import torch\nHELD = torch.ones(1, device='cuda') if torch.cuda.is_available() else open('/dev/zero', 'rb')\n",
}
# Without a GPU a module that asks leaves no descriptor, so it is imported ahead, and torch marks its forks. With a GPU that mark
# would be the end of them, but there the driver's descriptors are open, for which the module is refused.
MARKED = "forked from a process that had initialized CUDA"
WORLD = 2 if ON_GPU else 1
WAIT = 40 if ON_GPU else PATIENCE  # seconds; what would fail later there fails at the check's limit, without a word
WARM = ("--warm", "on", "--warm_memory", "50%")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as pids:
            return [child for child in map(int, pids.read().split()) if state_of(child) not in (None, "Z", "X")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def parked(events):
    """The interpreter that waits, and what it has forked ahead: the keeper's children that are no workers, and theirs."""
    workers = {line["worker_pid"] for line in events.find("worker_started")}
    found = [pid for pid in children(events.find("agent_start")[0]["keeper"]) if pid not in workers]
    for pid in found:
        found += children(pid)
    return found


def held_by(pids):
    found = {}
    for pid in pids:
        try:
            found[pid] = held(pid)
        except (FileNotFoundError, ProcessLookupError):  # it has just become a worker, or ended
            continue
    return found


class WarmFork(GpuCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.bed.path("modules"))
        paths = [self.bed.path("modules"), os.environ.get("PYTHONPATH")]
        self.bed.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def start(self, ranks, options, modules, **process):
        return self.launch(ranks, (*WARM, *options), "importing.py", "--device", DEVICE, "--journal", self.bed.journal.path,
                           "--modules", ",".join(modules), **process)

    def assert_parked_without_gpu(self, events):
        """The interpreter, the process in between, and the next worker hold nothing of the GPU."""
        found = held_by(parked(events))
        self.assertTrue(found, "nothing waits to be forked")
        self.assertEqual([[]] * len(found), list(found.values()))

    def assert_works(self, worker):
        """On the GPU, with a GPU's results."""
        self.assertEqual(8.0, worker["first"])
        self.assertEqual("cuda:0" if ON_GPU else "cpu", worker["device"])
        self.assertEqual(2, len(worker["weight"]))
        for weight in worker["weight"]:
            self.assertAlmostEqual(0.899, weight, places=4)  # AdamW: 1 - 0.1 * 0.01 of decay - 0.1
        self.assertEqual(1 if ON_GPU else 0, worker["gpus"])
        self.assertTrue(held(worker["pid"]) or not ON_GPU, "held() doesn't see a process that uses the GPU")

    def check_frameworks(self, job):
        """The imports are learned from the first workers."""
        first = job.said("worker", WORLD, WAIT)
        print(f"imported: {first[0]['modules']}", flush=True)
        ready = job.wait(lambda: job.events.find("warm_ready") or job.events.find("warm_off"), "an interpreter", WAIT)[0]
        for line in job.events.find("warm_refused"):
            print(f"refused: {line['module']} {line['why']}", flush=True)
        self.assertEqual("warm_ready", ready["event"], ready)
        figure("modules_ahead", int(ready["modules"]), "")
        figure("imports", int(ready["import_ms"]) / 1000, "s")
        self.assert_parked_without_gpu(job.events)
        os.kill(first[-1]["pid"], signal.SIGKILL)
        second = job.said("worker", WORLD, WAIT, generation=2)
        self.assertEqual([True] * WORLD, [line["warm"] for line in job.events.find("worker_started", generation=2)])
        for worker in second:
            self.assertIn("torch", worker["ahead"])
            self.assertEqual("", worker["had_cuda"])
            self.assertEqual(first[0]["modules"], worker["modules"])
            self.assert_works(worker)
        figure("frameworks_ahead", len(second[0]["ahead"]) - 1, "")
        self.assert_parked_without_gpu(job.events)
        self.bed.finish(second)
        self.finish_job(job.agent)

    def check_module(self, job):
        """A module of MODULES was to be imported ahead of the first worker."""
        worker, = job.said("worker", 1, WAIT)
        refused = {line["module"]: line["why"] for line in job.events.find("warm_refused")}
        ahead = job.name in worker["ahead"]
        print(f"{job.name}: {'ahead' if ahead else 'not ahead'}; refused: {refused}", flush=True)
        figure(f"{job.name}_ahead", int(ahead), "")
        self.assertEqual({job.name: ""}, worker["modules"])
        self.assertIn(worker["had_cuda"], ("",) if ON_GPU else ("", MARKED))
        self.assertNotEqual(ahead, job.name in refused)
        if job.name == "takes_gpu":
            self.assertIn("leaves the descriptor of /dev/", refused.get(job.name, ""))
        self.assert_works(worker)
        self.assert_parked_without_gpu(job.events)
        self.bed.finish([worker])
        self.finish_job(job.agent)

    def test_forks(self):
        """Fails where something that is imported ahead opens the GPU and isn't refused for it, and where a fork can't use the GPU
        any more, as one of an interpreter that has asked CUDA."""
        frameworks = Job(self, "frameworks", lambda: self.start(WORLD, ("--max_restarts", 1), FRAMEWORKS, name="frameworks"))
        jobs = []
        for name, text in MODULES.items():
            self.bed.write(f"modules/{name}.py", text)
            jobs.append(Job(self, name, lambda name=name: self.start(1, ("--preload", f"torch,{name}"), [name], name=name)))
        for job in jobs:
            with self.subTest(module=job.name):
                self.check_module(job)
        self.check_frameworks(frameworks)

    def test_a_held_device_is_seen(self):
        """Open, or only mapped."""
        zero = os.open("/dev/zero", os.O_RDWR)
        self.assertEqual(["/dev/zero"], held(os.getpid(), "/dev/zero"))
        mapped = mmap.mmap(zero, mmap.PAGESIZE)
        os.close(zero)
        zeros = held(os.getpid(), "/dev/zero")  # Python's mmap has a descriptor of its own
        mapped.close()
        self.assertTrue(zeros)
        self.assertEqual([], held(os.getpid(), "/dev/zero"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
