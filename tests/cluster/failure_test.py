#!/usr/bin/env python3
"""Workers and agents die: which nodes restart, with how many ranks, and which budget is charged."""

import signal

import job
from bed import SLOW


class WorkerFailures(job.ClusterTestCase):
    def test_killed_worker_restarts_all(self):
        agents, generation = self.start_all(3, "3")
        before = self.bed.workers(generation, 3)
        self.bed.signal_workers(before[1:2], signal.SIGKILL)
        after = self.bed.next_workers(generation, 3, 3, alive=agents)
        self.assertEqual([1, 1, 1], [line["restart_count"] for line in after], "one count for the whole job")
        self.assertEqual([line["host"] for line in before], [line["host"] for line in after], "ranks stay")
        self.assertEqual([], self.bed.events.find("node_lost"))
        self.finish(agents, after[0]["generation"], 3)

    def test_without_a_budget_the_job_fails_everywhere(self):
        """Negative control: --max_restarts 0."""
        agents, generation = self.start_all(3, "3", restarts=0)
        self.bed.signal_workers(self.bed.workers(generation, 3)[1:2], signal.SIGKILL)
        for agent in agents:
            self.assert_status(1, agent)
            self.assertIn("SIGKILL", agent.text())
        self.assertEqual([], self.generations_after(generation))

    def test_budget_is_the_jobs(self):
        """Failures of two nodes spend one budget."""
        agents, generation = self.start_all(2, "2", restarts=1)
        self.bed.signal_workers(self.bed.workers(generation, 2)[:1], signal.SIGUSR2)
        second = self.bed.next_workers(generation, 2, 2, alive=agents)
        self.bed.signal_workers(second[1:], signal.SIGUSR2)
        for agent in agents:
            self.assert_status(1, agent)

    def test_workers_that_ignore_term_are_killed(self):
        agents, generation = self.start_all(2, "2", worker=("ignore-term", "wait"), options=("--grace", 0.5))
        self.bed.signal_workers(self.bed.workers(generation, 2)[:1], signal.SIGKILL)
        after = self.bed.next_workers(generation, 2, 2, alive=agents)
        self.finish(agents, after[0]["generation"], 2)


class AgentFailures(job.ClusterTestCase):
    def kill_agent(self, agent, number=signal.SIGKILL):
        agent.signal(number)
        agent.wait(5 * SLOW)

    def test_killed_agent_shrinks_an_elastic_job(self):
        agents, generation = self.start_all(3, "1:3", conf="last_call_timeout=30")
        self.kill_agent(agents[2])
        after = self.bed.next_workers(generation, 2, 2, alive=agents[:2])
        self.assertEqual([0, 0], [line["restart_count"] for line in after], "a lost node costs no restart")
        lost = self.bed.event("node_lost")
        # The victim's own workers are gone before the next generation begins.
        self.assertLess(lost["t"], after[0]["t"])
        self.finish(agents[:2], after[0]["generation"], 2)

    def test_a_node_that_comes_back_grows_the_job(self):
        agents, generation = self.start_all(2, "1:2")
        self.kill_agent(agents[1])
        alone = self.bed.next_workers(generation, 1, 1, alive=agents[:1])
        back = self.start(2, "1:2", name="agent2-again")
        grown = self.bed.next_workers(alone[0]["generation"], 2, 2, alive=[agents[0], back])
        self.assertEqual([0, 0], [line["restart_count"] for line in grown])
        self.finish([agents[0], back], grown[0]["generation"], 2)

    def test_fixed_size_waits_for_a_replacement(self):
        """Negative control of shrinking: with --nnodes 2 one node is not enough, and a replacement takes the place."""
        agents, generation = self.start_all(2, "2")
        self.kill_agent(agents[1])
        self.bed.event("node_lost", alive=agents[:1])
        self.bed.event("group_empty", generation=generation, pid=agents[0].pid, alive=agents[:1])
        self.assertEqual([], self.generations_after(generation))
        replacement = self.start(3, "2")
        after = self.bed.next_workers(generation, 2, 2, alive=[agents[0], replacement])
        self.assertEqual(["n1", "n3"], [line["host"] for line in after])
        self.finish([agents[0], replacement], after[0]["generation"], 2)

    def test_no_replacement_in_time(self):
        agents, _ = self.start_all(2, "2", conf="join_timeout=1")
        self.kill_agent(agents[1])
        self.assert_status(1, agents[0])
        self.assertIn("1 of 2", agents[0].text())

    def test_agent_that_leaves_in_order(self):
        """SIGTERM to the agent of a node that doesn't host: an elastic job goes on without it."""
        agents, generation = self.start_all(2, "1:2")
        agents[1].signal(signal.SIGTERM)
        alone = self.bed.next_workers(generation, 1, 1, alive=agents[:1])
        self.assert_status(1, agents[1])
        self.finish(agents[:1], alone[0]["generation"], 1)

    def test_frozen_agent_loses_its_lease(self):
        agents, generation = self.start_all(2, "1:2", conf="lease=1")
        agents[1].signal(signal.SIGSTOP)
        alone = self.bed.next_workers(generation, 1, 1, alive=agents[:1])
        self.assertLess(self.bed.event("node_lost")["t"], alone[0]["t"])
        agents[1].signal(signal.SIGCONT)
        # Back from the freeze it learns that its generation is over, and joins anew.
        grown = self.bed.next_workers(alone[0]["generation"], 2, 2, alive=agents)
        self.finish(agents, grown[0]["generation"], 2)

    def test_spare_takes_over(self):
        agents, generation = self.start_all(2, "2")
        spare = self.start(3, "2")
        self.bed.event("node_joined", count=3, alive=[*agents, spare])
        self.kill_agent(agents[1])
        after = self.bed.next_workers(generation, 2, 2, alive=[agents[0], spare])
        self.assertEqual(["n1", "n3"], [line["host"] for line in after])
        self.finish([agents[0], spare], after[0]["generation"], 2)

    def test_unused_spare_ends_well(self):
        agents, _ = self.start_all(2, "2")
        spare = self.start(3, "2")
        self.bed.event("node_joined", count=3, alive=[*agents, spare])
        self.finish(agents, 1, 2)
        self.assert_status(0, spare)


if __name__ == "__main__":
    job.main()
