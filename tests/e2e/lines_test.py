#!/usr/bin/env python3
"""Lines for what a user could only guess otherwise: a rank that had left before others failed, one that doesn't end, one that
never came to the workers' store (docs/LOGS.md). Each has a negative control: a healthy job without the line."""

import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, BedTestCase, free_port, torch_ahead, torch_is_there  # noqa: E402
from bed import TORCH_PYTHON  # noqa: E402


def node_words(node, port):
    return ["--nnodes", 2, "--node_rank", node, "--master_addr", "127.0.0.1", "--master_port", port]


LEAVES = """
import os, signal, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == int(sys.argv[1]):
    os._exit(0)
try:
    dist.all_reduce(torch.ones(1))
finally:
    if sys.argv[2:]:
        if dist.get_rank() == 0:
            raise ValueError("of its own")
        signal.pause()  # or it could have left first
"""


@unittest.skipUnless(torch_is_there(), "torch isn't installed: scripts/setup")
class LeftBefore(BedTestCase):
    """A rank that ends with 0 while others wait for it is no failure, so no report would name it."""

    def facts(self, leaver, *more):
        report = self.bed.path("report.json")
        agent = self.bed.run("ddprun", ["--nproc_per_node", 2, *torch_ahead(), "--report_file", report,
                                        self.bed.write("t.py", LEAVES), leaver, *more], env={"PYTHON_EXEC": TORCH_PYTHON})
        self.assert_status(1, agent, 60 * SLOW)
        with open(report, encoding="utf-8") as source:
            cause = json.load(source)["root_causes"][0]
        return [fact for fact in cause["facts"] if fact.startswith("left: ")], agent.text()

    def test_rank_that_left(self):
        facts, text = self.facts(1)
        self.assertEqual(1, len(facts), text)
        self.assertRegex(facts[0], r"^left: rank 1 had ended with status 0, [0-9.]+m?s before$")
        self.assertRegex(text, r"\n  left      : rank 1 had ended with status 0, ")


    def test_twin_with_a_failure_of_its_own(self):
        """No rank had left, so none is named."""
        facts, text = self.facts(7, "fails")
        self.assertEqual([], facts, text)
        self.assertNotIn("\n  left ", text)

    def test_rank_of_another_node(self):
        """The rank's node stopped its workers, so no failure comes from there."""
        port, script, report = free_port(), self.bed.write("t.py", LEAVES), self.bed.path("report.json")
        reports = [report, self.bed.path("other.json")]
        agents = [self.bed.run(f"node{node}", [*node_words(node, port), *torch_ahead(), "--report_file", reports[node], script,
                                               1], env={"PYTHON_EXEC": TORCH_PYTHON}) for node in (0, 1)]
        for agent in agents:
            self.assert_status(1, agent, 60 * SLOW)
        with open(report, encoding="utf-8") as source:
            facts = json.load(source)["root_causes"][0]["facts"]
        self.assertIn("left: rank 1 had ended with status 0", facts)


ENDS = """
import os, sys, threading
def upload():
    threading.Event().wait()
if os.environ["RANK"] == sys.argv[1]:
    threading.Thread(target=upload, name="uploader").start()
"""

ENDS_WITH_TORCH = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n" + ENDS


class StillRuns(BedTestCase):
    """Half a minute after the others a line names the rank that has a thread left, and ends nothing."""

    def line(self, agent):
        return self.bed.wait(lambda: [line for line in agent.text().splitlines() if " still run" in line], "the line",
                             60 + PATIENCE, alive=[agent])[0]

    def stop(self, agent):
        agent.signal(signal.SIGINT)
        agent.wait(PATIENCE)

    def test_rank_with_a_thread(self):
        agent = self.bed.run("ddprun", ["--nproc_per_node", 3, "--event_log", self.bed.events.path,
                                        self.bed.write("t.py", ENDS), 1])
        self.assertRegex(self.line(agent), r"^ddprun: 30s after the other ranks ended with status 0, rank 1 \(pid \d+; it "
                         r"waits for a lock\) still runs; nothing is ended$")
        self.assertEqual("1", self.bed.event("still_running")["ranks"])
        self.stop(agent)

    @unittest.skipUnless(torch_is_there(), "torch isn't installed: scripts/setup")
    def test_thread_is_named(self):
        agent = self.bed.run("ddprun", ["--nproc_per_node", 2, *torch_ahead(), self.bed.write("t.py", ENDS_WITH_TORCH), 1],
                             env={"PYTHON_EXEC": TORCH_PYTHON})
        self.assertRegex(self.line(agent), r"rank 1 \(pid \d+; it waits for a lock; at t.py:\d+ in upload \(thread uploader; the "
                         r"interpreter waits for its end\)\) still runs")
        self.stop(agent)

    def test_rank_of_another_node(self):
        """All that runs there is the one, so its own node can't know that the others have ended."""
        port, script = free_port(), self.bed.write("t.py", ENDS)
        agents = [self.bed.run(f"node{node}", [*node_words(node, port), script, 1]) for node in (0, 1)]
        self.assertRegex(self.line(agents[1]), r"^ddprun: 30s after the ranks of \S+/0 ended with status 0, rank 1 \(.*\) still "
                         "runs")
        for agent in agents:
            self.stop(agent)

    def test_twin_whose_ranks_all_end(self):
        agent = self.bed.run("ddprun", ["--nproc_per_node", 2, "--event_log", self.bed.events.path,
                                        self.bed.write("t.py", ENDS), 7])
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("still_running"))


COMES = """
import os, sys, time
os.environ.update(dict(word.split("=") for word in sys.argv[2:] if os.environ["RANK"] in sys.argv[1]))
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
"""


@unittest.skipUnless(torch_is_there(), "torch isn't installed: scripts/setup")
class NotAtTheStore(BedTestCase):
    """Ranks that wait for others in init_process_group say nothing for as long as torch's time-out."""

    def start(self, *words):
        return self.bed.run("ddprun", ["--nproc_per_node", 3, *torch_ahead(), "--event_log", self.bed.events.path,
                                       self.bed.write("t.py", COMES), *words], env={"PYTHON_EXEC": TORCH_PYTHON})

    def line(self, agent, words):
        return self.bed.wait(lambda: [line for line in agent.text().splitlines() if words in line], "the line",
                             30 + PATIENCE, alive=[agent])[0]

    def test_rank_that_changes_its_port(self):
        agent = self.start("1", f"MASTER_PORT={free_port()}")
        self.assertRegex(self.line(agent, "come"), r"^ddprun: ranks wait at the workers' store \(127.0.0.1:\d+, MASTER_ADDR and "
                         r"MASTER_PORT\) for others that haven't come within 10s: rank 1 \(.*\)\. Does the script set ")
        self.assertEqual("1", self.bed.event("store_missing")["ranks"])
        agent.signal(signal.SIGINT)
        agent.wait(PATIENCE)

    def test_all_change_their_port(self):
        port = free_port()
        agent = self.start("012", f"MASTER_PORT={port}")
        self.assertRegex(self.line(agent, "looked for"), rf"^ddprun: rank 0 has looked for the workers' store at "
                         rf"127.0.0.1:{port} for 10 s, but the launcher serves it at 127.0.0.1:\d+")
        agent.signal(signal.SIGINT)
        agent.wait(PATIENCE)

    def test_twin(self):
        agent = self.start("")
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("store_missing"))
        self.assertNotIn("looked for", agent.text())


class NodeThatStaysAlone(BedTestCase):
    """A step of two nodes. ddprun was started on the first one only, as from the shell of srun --pty."""

    def start(self, node):
        step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost,127.0.0.1",
                "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
                "SLURM_NODEID": str(node), "SLURM_PROCID": str(node), "SLURM_LOCALID": "0", "SLURMD_NODENAME": "localhost",
                "SLURM_JOB_END_TIME": "32503680000"}
        return self.bed.run(f"node{node}", [self.bed.write("t.py", "")], env=step)

    def test_cure(self):
        agent = self.start(0)
        self.bed.wait(lambda: "no other node has come" in agent.text(), "the hint", 20 + PATIENCE, alive=[agent])
        agent.signal(signal.SIGINT)
        agent.wait(PATIENCE)

    def test_twin(self):
        agents = [self.start(node) for node in (0, 1)]
        for agent in agents:
            self.assert_status(0, agent)
            self.assertNotIn("srun", agent.text())


class Nameless(BedTestCase):
    """A machine whose hostname is empty: a container made without one."""

    def test_job_runs(self):
        if os.geteuid() != 0:
            self.skipTest("only root may have a hostname of its own")
        agent = self.bed.start_process(
            "agent", ["unshare", "-u", sys.executable, "-c", "import os, socket, sys; socket.sethostname(''); "
                      "os.execv(sys.argv[1], sys.argv[1:])", DDPRUN, "--nproc_per_node", "2", self.bed.write("t.py", "")],
            output=self.bed.path("agent.out"), env=self.bed.environment)
        self.assert_status(0, agent)


if __name__ == "__main__":
    unittest.main()
