#!/usr/bin/env python3
"""ddprun chaos (docs/CHAOS.md): real jobs with injected faults, and what the report says they cost."""

import json
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, WORKER, BedTestCase, free_port  # noqa: E402

MARKING = os.path.join(ROOT, "tests", "support", "marking_worker.py")
EXPECTATION_MISSED = 94


class ChaosTestCase(BedTestCase):
    def plan(self, text, name="plan.yaml"):
        return self.bed.write(name, text)

    def chaos(self, plan, options, program, name="chaos"):
        """A node of a job under `ddprun chaos`; its report goes to <name>.json."""
        return self.bed.run(name, ["chaos", "--chaos_report", self.bed.path(f"{name}.json"), self.plan(plan, f"{name}.yaml"),
                                   "--event_log", self.bed.events.path, *options, *program])

    def marking(self, plan, *options, steps=int(150 * SLOW), worker_plans=()):
        return self.chaos(plan, ["--standalone", "--nproc_per_node", 2, *options],
                          [MARKING, self.bed.journal.path, free_port(), 4, steps, *worker_plans])

    def waiting(self, plan, *options, count=1, name="chaos"):
        return self.chaos(plan, ["--nproc_per_node", count, *options], [WORKER, self.bed.journal.path, "wait"], name)

    def report(self, name="chaos"):
        with open(self.bed.path(f"{name}.json"), encoding="utf-8") as source:
            return json.load(source)

    def only_fault(self, name="chaos"):
        report = self.report(name)
        self.assertEqual(1, len(report["faults"]), report)
        return report["faults"][0]

    def finish_job(self, generation, count, *agents):
        self.bed.finish(self.bed.workers(generation, count, alive=agents))
        for agent in agents:
            self.assert_status(0, agent)


class Workers(ChaosTestCase):
    def test_a_worker_killed_at_a_step(self):
        agent = self.marking("seed: 1\nfaults:\n  - {fault: worker_killed, worker: random, step: 150}\n",
                             "--max_restarts", 1)
        self.assert_status(0, agent)
        fault = self.only_fault()
        self.assertEqual(("restarted", "worker_failure", 1), (fault["outcome"], fault["rule"], fault["restarts"]))
        self.assertLess(fault["noticed_ms"], 100 * SLOW)
        self.assertTrue(0 < fault["noticed_ms"] <= fault["released_ms"] < fault["resumed_ms"] < fault["training_ms"], fault)
        # The program has no checkpoints: what it had marked is lost, but for what our look at the page came late by.
        self.assertTrue(150 <= fault["step_before"] < 150 + 100 * SLOW, fault)
        self.assertEqual(fault["step_before"] - fault["step_after"], fault["steps_lost"])
        self.assertLess(fault["step_after"], 20 * SLOW)
        self.assertIn("restarted: worker_failure", agent.text())
        killed = self.bed.event("worker_exit", generation=1, signal=9)
        self.assertEqual(int(fault["victim"].split()[1]), killed["local_rank"])

    def test_twin_without_faults_is_the_job_itself(self):
        agent = self.marking("faults: []\n")
        self.assert_status(0, agent)
        report = self.report()
        self.assertEqual(([], [], 0, "succeeded"), (report["faults"], report["beside_the_plan"], report["restarts"],
                                                    report["outcome"]))
        self.assertEqual([], self.bed.events.find("round_closing"))

    def test_a_stopped_worker_hangs_the_job(self):
        """Noticed at once, dealt with when its marks are overdue."""
        step = int(200 * SLOW)  # of so many the agent has seen the 100 that it learns from
        steps = step + int(100 * SLOW)
        agent = self.marking(f"faults:\n  - {{fault: worker_stopped, worker: 1, step: {step}}}\n", "--max_restarts", 1,
                             "--hang_timeout", 2, steps=steps)
        self.assert_status(0, agent)
        fault = self.only_fault()
        self.assertEqual("restarted", fault["outcome"])
        self.assertLess(fault["noticed_ms"], 100 * SLOW)
        self.assertGreater(fault["released_ms"], 300)
        self.assertTrue(step <= fault["steps_lost"] + fault["step_after"] < steps, fault)

    def test_twin_stopped_for_a_moment(self):
        agent = self.marking("faults:\n  - {fault: worker_stopped, worker: 1, step: 200, for: 100ms}\n"
                             "expect: {resumed: 1ms, steps_lost: 0}\n")
        self.assert_status(0, agent)
        fault = self.only_fault()
        self.assertEqual(("ridden out", None), (fault["outcome"], fault["released_ms"]))
        self.assertGreater(fault["over_ms"], 99)
        self.assertEqual(0, self.report()["restarts"])

    def test_while_saving(self):
        """Once in each generation; only the first one saves, at step 50."""
        agent = self.marking("faults:\n  - {fault: worker_killed, worker: 0, moment: saving, signal: TERM, times: 2}\n",
                             "--max_restarts", 2, steps=200, worker_plans=("0@50=checkpoint",))
        self.assert_status(0, agent)
        self.assertEqual(50, self.only_fault()["step_before"])
        self.bed.event("worker_exit", generation=1, local_rank=0, signal=15)

    def test_while_starting_twice(self):
        agent = self.marking("faults:\n  - {fault: worker_killed, worker: 1, moment: starting, times: 2}\n",
                             "--max_restarts", 2, steps=50)
        self.assert_status(0, agent)
        self.assertEqual([(1, 1), (2, 2)],
                         [(fault["occurrence"], fault["generation"]) for fault in self.report()["faults"]])

    def test_a_user_ends_it(self):
        agent = self.waiting("faults:\n  - {fault: worker_stopped, worker: 0, at: 0s}\n", "--grace", "5")
        self.bed.event("fault", alive=[agent])
        agent.signal(signal.SIGINT)
        self.assert_status(1, agent)
        fault = self.only_fault()
        self.assertEqual(("not over", None), (fault["outcome"], fault["released_ms"]))
        self.bed.follower.refresh()
        self.assertEqual(1, len(self.bed.events.find("signal")), "one Ctrl-C is one signal")

    def test_nothing_outlives_it(self):
        agent = self.waiting("faults: []\n", count=2)
        self.bed.workers(1, 2, alive=[agent])
        agent.signal(signal.SIGKILL)
        agent.wait(20 * SLOW)  # the end of the test looks for what is left


class Expectations(ChaosTestCase):
    PLAN = "faults:\n  - {fault: worker_killed, worker: 0, at: 100ms}\n"

    def test_missed(self):
        agent = self.waiting(self.PLAN + "expect: {resumed: 0.001ms, noticed: 10s}\n", "--max_restarts", 1)
        self.finish_job_with(EXPECTATION_MISSED, agent)
        self.assertRegex(agent.text(), r"MISSED by fault 1: resumed: after .*, expected within 1us")
        self.assertEqual((True, False), (self.report()["judged"], self.report()["kept"]))

    def test_twin_kept(self):
        agent = self.waiting(self.PLAN + "expect: {resumed: 20s, noticed: 10s, restarts: 1}\n", "--max_restarts", 1)
        self.finish_job_with(0, agent)
        self.assertIn("all expectations were kept", agent.text())

    def finish_job_with(self, status, agent):
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(status, agent)

    def test_a_fault_that_never_came(self):
        agent = self.waiting("faults:\n  - {fault: worker_killed, worker: 0, step: 9}\nexpect: {resumed: 20s}\n")
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(EXPECTATION_MISSED, agent)
        self.assertIn("fault 1 was never injected", agent.text())

    def test_a_job_that_fails_keeps_its_status(self):
        agent = self.waiting(self.PLAN + "expect: {resumed: 20s}\n")
        self.assert_status(1, agent)
        fault = self.only_fault()
        self.assertEqual(("ended the job", "restarts_spent"), (fault["outcome"], fault["rule"]))
        self.assertIn("resumed: expected within 20s, did not happen", fault["missed"])


class Nodes(ChaosTestCase):
    def two(self, plan, nnodes="1:2", *options):
        """The host of the service first, so that it has rank 0."""
        port = free_port()
        common = ["--nnodes", nnodes, "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_id", "job", "--max_restarts", 3,
                  *options]
        agents = []
        for name, hosts in (("first", 1), ("second", 0)):
            agents.append(self.waiting(plan, *common, "--rdzv_conf", f"is_host={hosts},last_call_timeout=30", name=name))
            self.bed.event("node_joined", count=len(agents), alive=agents)
        return agents

    def test_a_killed_agent_comes_back(self):
        rejoin_ms = int(750 * SLOW)  # until then the other node has gone on
        agents = self.two(f"faults:\n  - {{fault: agent_killed, node: 1, at: 200ms, rejoin: {rejoin_ms}ms}}\n"
                          f"expect: {{noticed: {2 * SLOW:g}s, resumed: {10 * SLOW:g}s, restarts: 0}}\n")
        # Two nodes, then one alone, then two again.
        self.bed.finish(self.bed.next_workers(2, 2, 2, alive=agents))
        for agent in agents:
            self.assert_status(0, agent)
        # The two agents read the same log: each knows all faults, and which node injected them.
        for name in ("first", "second"):
            fault = self.only_fault(name)
            self.assertEqual(("restarted", "membership_change", 0),
                             (fault["outcome"], fault["rule"], fault["restarts"]))
            self.assertLess(fault["noticed_ms"], 1000 * SLOW)
            self.assertTrue(rejoin_ms <= fault["over_ms"] < fault["rejoined_ms"], fault)
            self.assertLess(fault["resumed_ms"], fault["over_ms"], "the other node went on before it was back")
            self.assertEqual(["growth"], [end["rule"] for end in self.report(name)["beside_the_plan"]])
        self.assertEqual(1, len(self.bed.events.find("fault")))
        self.assertIn("chaos: fault 1: agent_killed", agents[1].text())
        self.assertNotIn("chaos: fault 1: agent_killed", agents[0].text())

    def test_a_node_that_is_not_there(self):
        agent = self.waiting("faults:\n  - {fault: agent_killed, node: 2, at: 0s}\n", "--nnodes", "1:2")
        self.assert_status(1, agent)
        self.assertIn("line 2 of the plan, agent_killed: the job has no node 2", agent.text())
        agents = self.two("faults:\n  - {fault: agent_killed, node: nohost, at: 0s}\nexpect: {resumed: 20s}\n", nnodes="2")
        self.bed.finish(self.bed.workers(1, 2, alive=agents))
        self.assert_status(EXPECTATION_MISSED, agents[0])  # the service is here, and knows all nodes
        self.assertIn("fault 1 was never injected", agents[0].text())
        self.assert_status(0, agents[1])

    def test_twin_without_rejoin_it_stays_smaller(self):
        agents = self.two("faults:\n  - {fault: agent_killed, node: 1, at: 200ms}\n")
        self.assert_status(0, agents[1])  # as the plan wanted
        self.finish_job(2, 1, agents[0])
        self.assertIsNone(self.only_fault("first")["rejoined_ms"])

    def test_a_frozen_agent_is_lost_after_its_lease(self):
        agents = self.two("faults:\n  - {fault: agent_frozen, node: 1, at: 200ms, for: 4s}\n", "1:2", "--lease", 1)
        self.bed.finish(self.bed.next_workers(2, 2, 2, timeout=40 * SLOW, alive=agents))
        for agent in agents:
            self.assert_status(0, agent)
        fault = self.only_fault("first")
        self.assertEqual("restarted", fault["outcome"])
        self.assertGreater(fault["noticed_ms"], 500)

    def test_twin_frozen_for_less_than_the_lease(self):
        agents = self.two("faults:\n  - {fault: agent_frozen, node: 1, at: 200ms, for: 300ms}\n", "1:2", "--lease", 10)
        self.bed.event("fault_over", alive=agents)
        self.finish_job(1, 2, *agents)
        self.assertEqual("ridden out", self.only_fault("first")["outcome"])

    def test_one_report_from_the_logs_of_all(self):
        agents = self.two("faults:\n  - {fault: worker_killed, worker: 1, at: 200ms}\n")
        self.finish_job(2, 2, *agents)
        lines = self.bed.events.lines
        parts = [self.bed.write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines[::2])),
                 self.bed.write("b.jsonl", "".join(json.dumps(line) + "\n" for line in lines[1::2]))]
        merged = self.bed.run("merged", ["chaos", "--chaos_report", self.bed.path("merged.json"), "--from_logs",
                                         ",".join(parts), self.bed.path("first.yaml")])
        self.assert_status(0, merged)
        self.assertEqual(self.report("first")["faults"], self.report("merged")["faults"])


class Services(ChaosTestCase):
    def test_a_killed_service_is_started_again(self):
        agent = self.waiting("faults:\n  - {fault: service_killed, at: 100ms}\n")
        self.bed.event("recovered", alive=[agent])
        self.finish_job(1, 1, agent)
        fault = self.only_fault()
        self.assertEqual("ridden out", fault["outcome"])
        self.assertLess(fault["noticed_ms"], 500 * SLOW)

    def test_twin_stalled_for_a_moment(self):
        agent = self.waiting("faults:\n  - {fault: service_stalled, at: 100ms, for: 300ms}\n")
        self.bed.event("fault_over", alive=[agent])
        self.finish_job(1, 1, agent)
        self.assertEqual("ridden out", self.only_fault()["outcome"])


class Words(ChaosTestCase):
    def test_a_bad_plan_starts_nothing(self):
        agent = self.waiting("faults:\n  - fault: worker_killed\n    workers: 1\n    at: 1s\n")
        self.assert_status(2, agent)
        self.assertRegex(agent.text(), r"chaos\.yaml:3: workers is no key of worker_killed; did you mean worker\?")
        self.assertFalse(os.path.exists(self.bed.events.path) and os.path.getsize(self.bed.events.path))

    def test_check_runs_nothing(self):
        plan = self.plan("faults:\n  - {fault: worker_killed, worker: 0, at: 1s}\n")
        agent = self.bed.run("check", ["chaos", "--check", plan, "--event_log", self.bed.events.path, WORKER])
        self.assert_status(0, agent)
        self.assertIn("1 faults, nothing is wrong", agent.text())
        self.assertEqual(0, os.path.getsize(self.bed.events.path))

    def test_what_the_page_shows(self):
        """Every plan of docs/CHAOS.md is one; those without a network are run by anybody."""
        with open(os.path.join(ROOT, "docs", "CHAOS.md"), encoding="utf-8") as page:
            plans = re.findall(r"```yaml\n(.*?)```", page.read(), re.DOTALL)
        self.assertGreaterEqual(len(plans), 2)
        for number, text in enumerate(plans):
            self.assertNotIn("network_cut", text if number == 0 else "")
            agent = self.bed.run(f"page{number}", ["chaos", "--check", self.plan(text), "--nnodes", "2:4", WORKER])
            status = agent.wait(20 * SLOW)
            if status != 0:
                self.assertRegex(agent.text(), "need root|nft")
                self.assertIn("network_cut", text)

    def test_networks_need_privileges(self):
        if os.geteuid() == 0:
            self.skipTest("root may change the network")
        agent = self.waiting("faults:\n  - {fault: network_cut, node: 0, at: 1s, for: 1s}\n")
        self.assert_status(1, agent)
        self.assertRegex(agent.text(), "line 2 of the plan, network_cut: .*(need root|nft is not installed)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
