#!/usr/bin/env python3
"""Workers bound to CPUs: what they may run on, over restarts too, and what is said of it."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import cluster  # noqa: E402
from bed import DDPRUN, PATIENCE, WORKER, BedTestCase  # noqa: E402
from fake_machine import cpu_list, regular  # noqa: E402

CPUS = sorted(os.sched_getaffinity(0))
# One line of JSON for each worker, in one write(2).
REPORT = """import json, os
os.write(1, (json.dumps({"rank": int(os.environ["RANK"]), "cpus": sorted(os.sched_getaffinity(0)),
                         "threads": os.environ.get("OMP_NUM_THREADS")}) + "\\n").encode())
"""


class BindingTestCase(BedTestCase):
    def ddprun(self, options, env=None, status=0):
        script = self.bed.write("report.py", REPORT)
        environment = {name: value for name, value in self.bed.environment.items()
                       if name not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES") and not name.startswith("HWLOC_")}
        result = subprocess.run([DDPRUN, *map(str, options), script], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=PATIENCE, env={**environment, **(env or {})}, check=False)
        self.assertEqual(status, result.returncode, result.stderr)
        return result

    def workers(self, options, env=None):
        lines = self.ddprun(options, env).stdout.splitlines()
        return sorted(map(json.loads, lines), key=lambda worker: worker["rank"])

    def cpus(self, options, env=None):
        return [worker["cpus"] for worker in self.workers(options, env)]


@unittest.skipIf(len(CPUS) < 2, "there is one CPU here: nothing to divide")
class Cores(BindingTestCase):
    """With hwloc's own variable, ddprun sees a machine with one core for each CPU of this one."""

    two = ["--nproc_per_node", 2]
    simple = {"HWLOC_SYNTHETIC": f"core:{CPUS[-1] + 1} pu:1"}
    # All CPUs are threads of one core.
    threads = {"HWLOC_SYNTHETIC": f"core:1 pu:{CPUS[-1] + 1}"}

    def test_two_workers_share_the_cores(self):
        half = (len(CPUS) + 1) // 2
        self.assertEqual([CPUS[:half], CPUS[half:]], self.cpus([*self.two, "--cpu_binding", "cores"], self.simple))
        # Negative control.
        self.assertEqual([CPUS, CPUS], self.cpus(self.two, self.simple))
        self.assertEqual([CPUS, CPUS], self.cpus([*self.two, "--cpu_binding", "numa"], self.simple))

    def test_threads_are_the_bound_cores(self):
        options = [*self.two, "--omp_threads", "auto"]

        def threads(more, env):
            return [worker["threads"] for worker in self.workers([*options, *more], env)]

        half = len(CPUS) // 2
        expected = [str(len(CPUS) - half), str(half)]
        self.assertEqual(expected, threads(["--cpu_binding", "cores"], self.simple))
        self.assertEqual([str(half)] * 2, threads([], self.simple))
        # One core with all its threads: one, where the CPUs alone would have given more.
        options = ["--omp_threads", "auto"]
        self.assertEqual(["1"], threads(["--cpu_binding", "numa"], self.threads))
        self.assertEqual([str(len(CPUS))], threads([], self.threads))

    def test_a_worker_needs_a_core(self):
        result = self.ddprun([*self.two, "--cpu_binding", "cores"], self.threads, status=1)
        self.assertIn("--cpu_binding 'cores': needs a physical core for each of the 2 workers", result.stderr)
        self.assertEqual(1, len([line for line in result.stderr.splitlines() if "error" in line]))
        result = self.ddprun([*self.two, "--cpu_binding", "cores", "--binding_fallback"], self.threads)
        self.assertIn("workers are not bound", result.stderr)

    def test_it_is_shown(self):
        result = self.ddprun([*self.two, "--cpu_binding", "cores", "--event_log", self.bed.events.path],
                             {**self.simple, "LOGLEVEL": "INFO"})
        half = (len(CPUS) + 1) // 2
        sets = [cpu_list(CPUS[:half]), cpu_list(CPUS[half:])]
        self.assertRegex(result.stderr, rf"workers' CPUs +: 0 to {sets[0]}; 1 to {sets[1]}\n")
        started = [self.bed.event("worker_started", local_rank=rank) for rank in (0, 1)]
        self.assertEqual(sets, [event["cpus"] for event in started])

    def test_hwloc_is_not_loaded_by_others(self):
        # The start of a run that binds nothing pays nothing for it.
        linked = subprocess.run(["ldd", DDPRUN], capture_output=True, text=True, check=True).stdout
        self.assertIn("libc.so", linked)
        self.assertNotIn("hwloc", linked)

    def test_a_restart_keeps_it(self):
        agent = self.bed.run("agent", [*self.two, "--cpu_binding", "cores", "--max_restarts", 1, "--event_log",
                                       self.bed.events.path, WORKER, self.bed.journal.path, "wait"], env=self.simple)
        seen = []
        for generation in (1, 2):
            workers = self.bed.workers(generation, 2, alive=[agent])
            seen.append([sorted(os.sched_getaffinity(worker["pid"])) for worker in workers])
            if generation == 1:
                self.bed.signal_workers(workers[:1], signal.SIGKILL)
        half = (len(CPUS) + 1) // 2
        self.assertEqual([[CPUS[:half], CPUS[half:]]] * 2, seen)
        self.bed.finish(workers)
        self.assert_status(0, agent)


class Gpus(BindingTestCase):
    """A machine with GPUs is mounted over /sys and /proc, in namespaces of this test program."""

    @classmethod
    def setUpClass(cls):
        reason = os.environ.get("DDPRUN_TEST_WHY_NOT", "run through cluster.main()")
        if reason:
            raise unittest.SkipTest(reason)
        if len(CPUS) < 2:
            raise unittest.SkipTest("there is one CPU here: nothing to divide")

    def setUp(self):
        super().setUp()
        # Two nodes; of the real CPUs at least one is in each.
        machine = regular(2, 1, 1, CPUS[1], 1, gpus=(1, 0))
        machine.write(self.bed.path("machine"))
        for folder, fresh in (("/sys/devices/system/cpu", False), ("/sys/devices/system/node", False),
                              ("/sys/bus/pci/devices", False), ("/proc/driver", True)):
            self.mount(folder, self.bed.path("machine") + (folder if not fresh else "/proc/driver"))

    def mount(self, over, folder):
        subprocess.run(["mount", "--bind", folder, over], check=True)
        self.addCleanup(subprocess.run, ["umount", over], check=True)

    def test_workers_are_near_their_gpus(self):
        nodes = [[cpu for cpu in CPUS if cpu < CPUS[1]], [cpu for cpu in CPUS if CPUS[1] <= cpu < 2 * CPUS[1]]]
        options = ["--nproc_per_node", 2, "--numa_binding", "node"]
        self.assertEqual([nodes[1], nodes[0]], self.cpus(options))
        self.assertEqual([nodes[0], nodes[1]], self.cpus(options, {"CUDA_VISIBLE_DEVICES": "1,0"}))
        self.assertEqual([nodes[0]], self.cpus(["--nproc_per_node", "gpu:1", "--numa_binding", "exclusive"]))
        # Negative control.
        self.assertEqual([CPUS, CPUS], self.cpus(options[:2]))

    def test_more_workers_than_gpus(self):
        result = self.ddprun(["--nproc_per_node", 3, "--numa_binding", "node"], status=1)
        self.assertIn("there are 2 GPUs for 3 workers", result.stderr)


if __name__ == "__main__":
    cluster.main()
