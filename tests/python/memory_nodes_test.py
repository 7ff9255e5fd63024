#!/usr/bin/env python3
"""Checkpoints in memory when a node is lost with its agent (docs/ELASTIC.md, "Memory"): a new node takes its place, and all ranks
end bit by bit as undisturbed ones, because another node has copies.
"""

import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

from bed import ROOT, WHOLE_ONLY, free_port, main_with_torch  # noqa: E402
from memory_test import AHEAD, EVERY, PATIENCE, TRAINING, MemoryCase  # noqa: E402

SESSION = os.path.join(ROOT, "tests", "support", "elastic_python.py")
STEPS = 30


class NodesCase(MemoryCase):
    """Two nodes of two workers. Node 0 has the service."""

    def setUp(self):
        super().setUp()
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.journal = self.bed.follower.follow(self.bed.path("nodes.steps"))
        self.events = [self.bed.follower.follow(self.bed.path(f"node{node}.events")) for node in range(3)]

    def start_node(self, node, script, *arguments, options=(), stops=(), nodes=2):
        return self.bed.run(f"node{node}", [
            "--nnodes", nodes, "--nproc_per_node", 2, "--max_restarts", 3, "--local_addr", "127.0.0.1", "--rdzv_backend", "c10d",
            "--rdzv_endpoint", self.endpoint, "--rdzv_conf", f"is_host={int(node == 0)},last_call_timeout=60", *AHEAD,
            "--event_log", self.events[node].path, *options, script, self.journal.path, *arguments],
            env={"MEMORY_STOPS": ",".join(":".join(map(str, stop)) for stop in stops), "MEMORY_STOPS_BY": "LOCAL_RANK"})

    def lose_a_node(self, *forms, every=EVERY, stops=(), when, also_workers=False, script=TRAINING, options=()):
        """Node 1 is killed when when() is true, and another one comes. Returns the digests at the end."""
        arguments = [STEPS, every, *forms] if script == TRAINING else [STEPS, *forms]
        agents = [self.start_node(node, script, *arguments, options=options, stops=stops if node else ()) for node in range(2)]
        self.bed.wait(when, "the moment for the loss", PATIENCE, alive=agents)
        agents[1].signal(signal.SIGKILL)
        if also_workers:
            self.kill_all(self.events[0], 1)
        agents[1].wait(PATIENCE)
        agents[1] = self.start_node(2, script, *arguments, options=options, stops=stops)
        for agent in agents:
            self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: line["digest"] for line in self.journal.find("end")}

    def starts(self):
        """The steps with which the ranks began again."""
        return {line["rank"]: line["step"] for line in self.journal.find("start") if line["generation"] > 1}

    def stopped(self):
        return self.journal.find("stops", generation=1)

    def stopped_with_a_copy(self):
        """A rank sends its copy of step 20 for good. The three others' have arrived: they wait for them in step 24."""
        return self.stopped() and len(self.journal.find("step", step=24)) == 3

    def all_beyond(self, step):
        return len(self.journal.find("step", step=step)) == 4


class LostNode(NodesCase):
    def check(self, *forms, start, **options):
        digests, _ = self.undisturbed(*(form for form in forms if form != "alone"), workers=4, steps=STEPS)
        ends = self.lose_a_node(*forms, **options)
        self.assertEqual({rank: start for rank in range(4)}, self.starts())
        self.assertEqual(digests, ends)

    def test_shards(self):
        """A rank is lost within its save of step 20, so 15 is the newest that all have."""
        self.check("fsdp", stops=[(1, 20, 3)], when=self.stopped, start=15)

    @WHOLE_ONLY
    def test_every_step(self):
        self.check("fsdp", every=1, stops=[(1, 20, 3)], when=self.stopped, start=19)

    def test_generators_and_buffers_of_each_rank(self):
        """With DistributedDataParallel a copy has what ranks don't share; the rest is in all other checkpoints."""
        self.check(stops=[(1, 20, 3)], when=self.stopped, start=15)

    @WHOLE_ONLY
    def test_torn_copies(self):
        """A rank is lost while it sends its copy of step 20. The others wait for it before they begin step 25."""
        self.check("fsdp", stops=[(0, 20, -1)], when=self.stopped_with_a_copy, start=15)
        on_node_0 = {int(line["worker_pid"]) for line in self.events[0].find("worker_started")}
        self.assertTrue([line for line in self.journal.find("start", generation=2) if line["pid"] in on_node_0 and line["torn"]])

    def test_twin_without_the_slots_numbers(self):
        digests, _ = self.undisturbed("fsdp", workers=4, steps=STEPS)
        self.assertNotEqual(digests, self.lose_a_node("fsdp", "blind", stops=[(0, 20, -1)], when=self.stopped_with_a_copy))
        self.assertEqual({20}, set(self.starts().values()))

    def test_twin_without_copies(self):
        """The script begins anew."""
        self.check("fsdp", "alone", when=lambda: self.all_beyond(20), start=0)

    @WHOLE_ONLY
    def test_parameters_that_differ(self):
        """Copies are whole then."""
        self.check("scaled", stops=[(1, 25, 3)], when=self.stopped, start=20)

    @WHOLE_ONLY
    def test_a_full_budget(self):
        """A node's own checkpoints have 1.6 MiB, and copies as many."""
        self.check("fsdp", when=lambda: self.all_beyond(20), start=0, options=["--memory_checkpoints", "2MiB"])
        said = r"rank \d: no copies of checkpoints on another node: rank \d: .*--memory_checkpoints allows 2.0 MiB"
        self.bed.follower.refresh()
        self.assertRegex("\n".join(agent.text() for agent in self.bed.agents), said)


class OtherNumbers(NodesCase):
    """No node takes the lost one's place: two workers go on from what four have saved. A rank is lost within its save of step
    25, so 20 is the newest that all have."""

    def check(self, *forms, start):
        agents = [self.start_node(node, TRAINING, STEPS, EVERY, *forms, nodes="1:2", stops=[(1, 25, 3)] if node else ())
                  for node in range(2)]
        self.bed.wait(self.stopped, "the moment for the loss", PATIENCE, alive=agents)
        agents[1].signal(signal.SIGKILL)
        self.assert_status(0, agents[0], PATIENCE)
        self.bed.follower.refresh()
        self.assertEqual({0: start, 1: start}, {line["rank"]: line["step"] for line in self.journal.find("start", generation=2)})
        self.assertEqual([STEPS] * 2, [line["step"] for line in self.journal.find("end")])
        return agents[0].text()

    def test_shards(self):
        said = self.check("fsdp", start=20)
        self.assertIn("ddprun.elastic: the state of step 20, which 4 workers have saved in memory, is divided among 2", said)

    def test_the_same_on_all_ranks(self):
        self.check(start=20)

    def test_twin_without_copies(self):
        self.assertNotIn("is divided among", self.check("fsdp", "alone", start=0))


class LostNodeOfASession(NodesCase):
    """All ranks have the same state, and one worker of each node saves it, so any node's memory is right for all."""

    def test_the_other_nodes_memory(self):
        alone = self.bed.follower.follow(self.bed.path("alone.steps"))
        agent = self.bed.run("alone", ["--nproc_per_node", 4, *AHEAD, SESSION, alone.path, STEPS, "memory"])
        digests = self.end(agent, alone)
        ends = self.lose_a_node("memory", script=SESSION, also_workers=True, when=lambda: self.all_beyond(20))
        self.assertEqual(digests, ends)
        begun = {line["step"] for line in self.journal.find("ready", generation=2)}
        self.assertEqual(1, len(begun))
        self.assertGreaterEqual(begun.pop(), 10)


if __name__ == "__main__":
    main_with_torch()
