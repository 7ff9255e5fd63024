#!/usr/bin/env python3
"""What processes that workers leave behind (uploads, resource trackers) have time for: --leftovers."""

import os
import re
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import PATIENCE, SLOW, TORCH_PYTHON, WHOLE, BedTestCase, torch_is_there  # noqa: E402

from timeline import leftovers, state_of  # noqa: E402

RUNS = 100 if WHOLE else 4

# Each worker makes a segment of shared memory and leaves it to its resource tracker. `how`: it ends well; rank 1 is killed; all
# wait.
SHARED = """
import os, signal, sys
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=1 << 16)
os.write(1, f"made {memory.name}\\n".encode())
how = sys.argv[1]
if how == "killed" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if how != "well":
    signal.pause()
"""

# Rank 0 starts something that its end doesn't end. It waits for a FIFO, so that a test says when it is done.
DETACHED = {
    "start_new_session": """subprocess.Popen(["sh", "-c", TEXT], start_new_session=True)""",
    "nohup": """subprocess.run(["sh", "-c", f"nohup sh -c '{TEXT}' > /dev/null 2>&1 &"])""",
    "setsid": """subprocess.run(["setsid", "-f", "sh", "-c", TEXT])""",
    "double fork": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", TEXT])
    os._exit(0)
os.wait()
""",
}
UPLOAD = """
import os, subprocess, sys
folder, status = sys.argv[1], int(sys.argv[2])
TEXT = f"echo $$ > {folder}/pid; read x < {folder}/go; echo whole > {folder}/uploaded"
if os.environ["RANK"] == "0" and not os.path.exists(folder + "/pid"):
    %s
    while not os.path.exists(folder + "/pid") or not os.path.getsize(folder + "/pid"):
        os.sched_yield()
    sys.exit(status)
"""

FILE_SYSTEM = """
import os, signal, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.multiprocessing.set_sharing_strategy("file_system")
batches = iter(DataLoader(TensorDataset(torch.zeros(64, 1000)), batch_size=4, num_workers=2))
kept = [next(batches) for _ in range(3)]
if sys.argv[1] == "killed" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def shared_memory():
    """The segments and semaphores that Python and torch have made on this machine."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "sem.", "torch_"))}


class LeftoversCase(BedTestCase):
    def start(self, text, *arguments, options=(), name="agent", **process):
        script = self.bed.write("job.py", text)
        return self.bed.run(name, ["--nproc_per_node", 2, "--event_log", self.bed.events.path, *options, script, *arguments],
                            **process)

    def made(self, name="agent"):
        with open(self.bed.path(f"{name}.out"), encoding="utf-8") as file:
            return set(re.findall(r"made (psm_\w+)\n", file.read()))


class SharedMemoryLeft(LeftoversCase):
    """Segments of others come and go in /dev/shm, so these look for their own."""

    def check(self, how, options=(), runs=RUNS):
        """Gives how many segments are left after so many runs."""
        self.bed.forget_warm()
        left = set()
        for run in range(runs):
            name = f"agent{run}"
            agent = self.start(SHARED, how, options=options, name=name)
            if how == "stopped":
                self.bed.wait(lambda name=name: len(self.made(name)) == 2, "both segments", alive=[agent])
                agent.signal(signal.SIGTERM)
            self.assert_status(0 if how == "well" else 1, agent)
            self.assertTrue(self.made(name))
            left |= self.made(name) & shared_memory()
        for segment in left:
            os.unlink("/dev/shm/" + segment)
        return len(left)

    def test_good_runs_leave_none(self):
        self.assertEqual(0, self.check("well"))

    def test_twin_where_leftovers_are_killed_each_run_leaves_some(self):
        """Those of a killed rank; from Python 3.13 on others remove theirs before they end."""
        self.assertGreater(self.check("killed", options=["--leftovers", "kill"], runs=3), 0)

    def test_killed_ranks_leave_none(self):
        self.assertEqual(0, self.check("killed"))

    def test_restarts_leave_none(self):
        self.assertEqual(0, self.check("killed", options=["--max_restarts", 2], runs=1))

    def test_a_stopped_job_leaves_none(self):
        self.assertEqual(0, self.check("stopped"))

    def test_a_killed_agent_leaves_none_and_no_process(self):
        agent = self.start(SHARED, "stopped")
        self.bed.wait(lambda: len(self.made()) == 2, "both segments", alive=[agent])
        agent.signal(signal.SIGKILL)
        self.assertEqual({}, leftovers(self.bed.tag, 5 * SLOW))
        self.assertEqual(set(), self.made() & shared_memory())

    @unittest.skipUnless(torch_is_there(), "needs torch: scripts/setup")
    def test_torchs_file_system_strategy_leaves_nothing(self):
        folder = tempfile.mkdtemp(prefix="ddprun-leftovers-")
        self.addCleanup(shutil.rmtree, folder, True)
        before = {name for name in shared_memory() if name.startswith("torch_")}
        for how in ("well", "killed"):
            agent = self.start(FILE_SYSTEM, how, name=how, env={"PYTHON_EXEC": TORCH_PYTHON, "TMPDIR": folder})
            self.assert_status(0 if how == "well" else 1, agent, timeout=3 * PATIENCE)
            self.assertEqual([], [name for name in os.listdir(folder) if name.startswith("torch-shm-dir")], how)
        # Shared memory of other tests' jobs may still be there: only this test's pids count.
        pids = {str(line["worker_pid"]) for line in self.bed.events.find("worker_started")}
        new = {name for name in shared_memory() - before if name.startswith("torch_")}
        self.assertEqual(set(), {name for name in new if name.split("_")[1] in pids})


class Uploads(LeftoversCase):
    def setUp(self):
        super().setUp()
        os.mkfifo(self.bed.path("go"))
        self.bed.follower.watch(self.bed.write("uploaded", ""))

    def start_upload(self, kind, status=0, options=()):
        agent = self.start(UPLOAD % DETACHED[kind].strip().replace("\n", "\n    "), self.bed.folder, status, options=options)
        self.bed.event("leftovers", alive=[agent])
        with open(self.bed.path("pid"), encoding="ascii") as file:
            return agent, int(file.read())

    def uploaded(self):
        with open(self.bed.path("uploaded"), encoding="ascii") as file:
            return file.read()

    def let_go(self):
        with open(self.bed.path("go"), "w", encoding="ascii") as fifo:
            fifo.write("go\n")

    def check_success(self, kind):
        agent, _ = self.start_upload(kind)
        self.assertFalse(agent.ended())
        self.let_go()
        self.assert_status(0, agent)
        self.assertEqual("whole\n", self.uploaded())

    def test_it_finishes_after_success(self):
        self.check_success("start_new_session")

    def test_so_does_one_behind_nohup(self):
        self.check_success("nohup")

    def test_so_does_one_that_setsid_has_forked(self):
        self.check_success("setsid")

    def test_so_does_one_that_was_forked_twice(self):
        self.check_success("double fork")

    def test_twin_it_is_killed_where_that_was_asked_for(self):
        agent = self.start(UPLOAD % DETACHED["setsid"], self.bed.folder, 0, options=["--leftovers", "kill"])
        self.assert_status(0, agent)
        self.assertEqual("", self.uploaded())

    def test_when_its_time_is_over_it_is_killed_and_named(self):
        agent, pid = self.start_upload("start_new_session", options=["--leftovers", "wait=0.2"])
        self.assert_status(0, agent)
        killed = self.bed.event("leftover_killed")
        self.assertEqual((pid, 0, "was still there"), (killed["worker_pid"], killed["local_rank"], killed["why"]))
        self.assertRegex(agent.text(), rf"ddprun: killed 'sh -c .*' \(pid {pid} of local rank 0\), left behind by its worker: "
                                       r"it was still there 0 after the workers' end \(--leftovers\)")

    def test_a_signal_ends_the_wait_which_is_told(self):
        agent, pid = self.start_upload("start_new_session")
        self.bed.wait(lambda: "waiting up to 10m for 'sh -c" in agent.text(), "the line", alive=[agent])
        agent.signal(signal.SIGINT)
        self.assert_status(0, agent)
        self.assertIn(state_of(pid), (None, "Z"))

    def test_spared_it_outlives_the_job(self):
        agent, pid = self.start_upload("start_new_session", options=["--leftovers", "spare"])
        self.assert_status(0, agent)
        self.assertIn(f"(pid {pid} of local rank 0) (--leftovers spare)", agent.text())
        self.let_go()
        self.bed.wait(self.uploaded, "its end")

    def test_a_restart_does_not_wait_for_it(self):
        agent, pid = self.start_upload("start_new_session", status=3, options=["--max_restarts", 1])
        self.bed.event("spawn", generation=2, alive=[agent])
        self.assertNotIn(state_of(pid), (None, "Z"))
        self.let_go()
        self.assert_status(0, agent)
        self.assertEqual("whole\n", self.uploaded())

    def test_a_killed_agent_takes_it_along(self):
        agent, pid = self.start_upload("start_new_session")
        agent.signal(signal.SIGKILL)
        self.assertEqual({}, leftovers(self.bed.tag, 2 * SLOW))
        self.assertIn(state_of(pid), (None, "Z"))

    def test_what_holds_a_port_has_no_time_when_a_restart_comes(self):
        server = """
import os, socket, subprocess, sys
if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    listening = socket.create_server(("127.0.0.1", 0))
    subprocess.Popen(["sleep", "1000"], pass_fds=[listening.fileno()], start_new_session=True)
    sys.exit(3)
"""
        agent = self.start(server, options=["--max_restarts", 1])
        self.assert_status(0, agent)
        self.assertRegex(self.bed.event("leftover_killed", command="sleep 1000")["why"], r"held port \d+")
        self.assertRegex(agent.text(), r"killed 'sleep 1000' \(pid \d+ of local rank 0\), left behind by its worker: "
                                       r"it held port \d+, which a restart may need")


if __name__ == "__main__":
    unittest.main()
