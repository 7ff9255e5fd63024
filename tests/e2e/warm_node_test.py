#!/usr/bin/env python3
"""What the warm interpreter costs a node, what is reported of it, which workers it starts, and that it survives all kills."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, SLOWNESS, TORCH_PYTHON, free_port, torch_is_there  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402
from seeds import drawn_seed  # noqa: E402
from warm_case import TRAINING, KilledAtRandom, MemoryPressure, WarmTestCase  # noqa: E402

SEED = drawn_seed()
KILLS = 1000 if os.environ.get("DDPRUN_TEST_WHOLE") == "1" else 30
# A process in a small memory cgroup that reads a file larger than that again and again, until its input ends: it stands
# still for every page.
THRASH = """
import os, select, sys
own = b"1" * int(sys.argv[2])
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.unlink(sys.argv[1])
for _ in range(96):
    os.write(file, os.urandom(1 << 20))
os.fsync(file)
while not select.select([0], [], [], 0)[0]:
    for megabyte in range(96):
        os.pread(file, 1 << 20, megabyte << 20)
"""


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


class Seen(WarmTestCase):
    """Status, events and metrics report how workers were started."""

    def status(self, *options):
        return subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", *options],
                              capture_output=True, text=True, check=True, env=self.bed.environment).stdout

    def await_status(self, agent, wanted):
        """The node's line for warm starts, when it is so: it comes with the next heartbeat."""
        for _ in range(int(20 * PATIENCE)):
            node = json.loads(self.status("--json"))["jobs"][0]["nodes"][0]
            if wanted(node.get("warm") or {}):
                return node["warm"]
            self.assertFalse(select.select([agent.pidfd], [], [], 0.05)[0])
        self.fail(f"{node}")

    def start(self, *options):
        self.port = free_port()
        return self.bed.agent("agent", ["--nnodes", 1, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                        f"127.0.0.1:{self.port}", "--max_restarts", 9, *options])

    def test_status_and_events(self):
        agent = self.start("--warm", "on", "--preload", "decimal")
        self.bed.workers(1, 2, alive=[agent])
        warm = self.await_status(agent, lambda warm: warm.get("warm_workers") == 2)
        self.assertLess(1 << 20, int(warm["parked_bytes"]))
        self.assertEqual(0, warm["cold_workers"])
        status = self.status()
        self.assertIn("warm: 2 of 2 workers", status)
        self.assertIn("2 ranks on 1 node, runs for", status)
        self.assertIn(", 2 of 2 warm", status)
        start = self.bed.event("warm_start", generation="1")
        self.assertEqual(("2", "0", ""), (start["warm"], start["cold"], start["why_cold"]))
        self.bed.finish(self.bed.workers(1, 2))
        self.assert_status(0, agent)

    def test_why_they_are_cold(self):
        agent = self.start("--warm", "on")
        workers = self.bed.workers(1, 2, alive=[agent])
        warm = self.await_status(agent, lambda warm: warm.get("cold_workers") == 2)
        self.assertEqual("what the script imports was not known yet", warm["why_cold"])
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_twin_without_it(self):
        agent = self.start()
        workers = self.bed.workers(1, 2, alive=[agent])
        self.assertNotIn(" warm", self.status())
        self.assertEqual([], self.bed.events.find("warm_start"))
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_doctor_names_modules_that_prevent_it(self):
        self.module("spoilt", "FILE = open('/dev/zero')\n")
        agent = self.preloading("spoilt", "decimal")
        self.ready(alive=[agent])
        self.bed.finish(self.bed.workers(1, 2, alive=[agent]))
        self.assert_status(0, agent)
        told = subprocess.run([DDPRUN, "doctor"], capture_output=True, text=True, check=False, env=self.bed.environment)
        self.assertIn("'spoilt', which worker.py imports, can't be imported ahead: it leaves the descriptor of /dev/zero open",
                      " ".join(told.stdout.split()))


class Kills(KilledAtRandom):
    def test_at_random_moments(self):
        self.check(lambda options: self.preloading("decimal", "logging", options=options), SEED, KILLS)


@unittest.skipUnless(torch_is_there(), "torch is not installed")
class Spare(WarmTestCase):
    """A node that waits for another one to be lost has an interpreter that has learned from those that train."""

    def agent_of(self, name, cache):
        options = ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_id", "job",
                   "--rdzv_conf", "is_host=0", "--max_restarts", 3, "--warm", "on"]
        return self.bed.run(name, [*options, "--event_log", self.bed.events.path, self.script, self.bed.journal.path],
                            env={"PYTHON_EXEC": TORCH_PYTHON, "XDG_CACHE_HOME": self.bed.path(cache)})

    def lose_node(self, cache):
        """Whether the spare's worker started warm when its cache is this one. The service is elsewhere, and outlives the node."""
        self.script = self.bed.write("train.py", TRAINING)
        self.port = free_port()
        service = self.bed.run("service", ["rendezvous", "--listen", f"127.0.0.1:{self.port}"])
        lost = self.agent_of("lost", "cache")
        self.bed.workers(1, 1, alive=[service, lost])
        self.ready(alive=[lost])  # it has learned
        spare = self.agent_of("spare", cache)
        self.bed.event("standby", alive=[spare])
        if cache == "cache":
            self.ready(count=2, alive=[spare])
        lost.signal(signal.SIGKILL)
        self.bed.finish(self.bed.workers(2, 1, alive=[service, spare]))
        self.assert_status(0, spare)
        self.bed.follower.refresh()
        return [line["warm"] for line in self.bed.events.find("worker_started", generation=2)]

    def test_it_steps_in_warm(self):
        self.assertEqual([True], self.lose_node("cache"))

    def test_twin_with_a_home_of_its_own(self):
        self.assertEqual([False], self.lose_node("other"))
        self.assertEqual([], self.bed.events.find("warm_kept"))


class WhenMemoryIsShort(WarmTestCase):
    """The last one by its name: the kernel reports the pressure for some more seconds."""

    LIMIT = int(400 * SLOWNESS) << 20

    def setUp(self):
        if not os.access(MemoryPressure.FILE, os.W_OK):
            self.skipTest("this kernel doesn't report memory pressure (/proc/pressure/memory)")
        super().setUp()

    def cgroup(self, name, limit):
        cgroup = MemoryCgroup(limit, name)
        self.addCleanup(cgroup.close)
        return cgroup

    def thrash(self, cgroup, own=0):
        """Two that read more than the cgroup has room for, again and again; the first one has `own` bytes, too."""
        folder = tempfile.mkdtemp(dir="/var/tmp")  # on a disk: /tmp is memory, on Debian 13
        self.addCleanup(shutil.rmtree, folder)
        processes = [subprocess.Popen([sys.executable, "-c", THRASH, os.path.join(folder, str(i)), str(own * (i == 0))],
                                      stdin=subprocess.PIPE, preexec_fn=cgroup.enter) for i in range(2)]

        def end():
            for process in processes:
                process.stdin.close()
                process.wait()
        self.addCleanup(end)
        return end

    def test_it_goes_when_memory_is_short_and_comes_back_with_the_next_workers(self):
        cgroup = self.cgroup("job", self.LIMIT)
        agent = self.preloading("decimal", preexec_fn=cgroup.enter)
        workers = self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        parked = os.pidfd_open(self.parked())
        self.addCleanup(os.close, parked)
        self.assertFalse(select.select([parked], [], [], 0)[0])
        # The two processes make the difference: until now the interpreter stayed.
        end = self.thrash(cgroup, own=int(0.85 * self.LIMIT) - cgroup.held())
        self.assertIn("/proc/pressure/memory", self.bed.event("warm_short", alive=[agent])["why"])
        self.assertTrue(select.select([parked], [], [], 5 * SLOW)[0])
        end()
        self.bed.signal_workers(workers[1:], signal.SIGKILL)
        self.ready(count=2, alive=[agent])
        self.bed.finish(self.bed.workers(2, 2, alive=[agent]))
        self.assert_status(0, agent)

    def test_twin_others_at_a_limit_of_their_own(self):
        agent = self.preloading("decimal")
        self.ready(alive=[agent])
        end = self.thrash(self.cgroup("others", 24 << 20))
        pressure = MemoryPressure()
        self.addCleanup(pressure.close)
        for _ in range(2):  # its two seconds needn't be the agent's
            self.assertTrue(pressure.wait(20 * SLOW))
        end()
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))
        self.assertEqual([], self.bed.events.find("warm_short"))


if __name__ == "__main__":
    unittest.main()
