#!/usr/bin/env python3
"""The ledger of a job's time (docs/GOODPUT.md) beside what really happened: the workers' and the injector's own journal."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, SLOWNESS, BedTestCase, free_port  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "booking_worker.py")
BOUND = 0.1  # seconds that a cause of one fault may be wrong by


class GoodputTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.port, self.worker_port = free_port(), free_port()
        self.faults = []

    def node(self, rank, steps):
        return self.bed.run(
            f"node{rank}",
            ["--nnodes", 2, "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port", self.port, "--nproc_per_node",
             1, "--max_restarts", 20, "--restart_backoff", 0, "--quarantine_after", 0, "--lease", 2,
             "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, self.worker_port, steps, self.bed.path("state")])

    def after_steps(self, generation, steps, agents):
        """Until rank 0 of a generation has taken so many steps; its workers' lines by rank."""
        self.bed.wait(lambda: len(self.bed.journal.find("spent", generation=generation)) >= steps,
                      f"{steps} steps of generation {generation}", alive=agents)
        return self.bed.workers(generation, 2)

    def inject(self, pid, number):
        """A fault, and when it was."""
        self.faults.append(time.monotonic())
        os.kill(pid, number)

    def ledger(self):
        """Seconds by cause, of the job that has ended; what warm starts saved is no time of it."""
        line = self.bed.event("ledger")
        return {name.removesuffix("_ms"): int(value) / 1000 for name, value in line.items()
                if name.endswith("_ms") and name != "warm_saved_ms"}

    def truth(self):
        """The same from the journals: what rank 0 did, when faults were injected, when generations began and ended."""
        events = self.bed.events
        joined = events.find("node_joined")[0]["t"]
        formed = {int(e["generation"]): e["t"] for e in events.find("generation")}
        closing = {int(e["generation"]): e["t"] for e in events.find("round_closing")}
        closed = {int(e["generation"]): e["t"] for e in events.find("round_closed")}
        ended = events.find("verdict", who="service")[0]["t"]
        spent = dict.fromkeys(("rendezvous", "start_up", "restart", "training", "rework", "data_wait", "checkpoint", "detection",
                               "ending"), 0.0)
        spent["rendezvous"] = formed[1] - joined
        highest = 0
        for generation, began in formed.items():
            over = closing.get(generation, ended)
            faults = [fault for fault in self.faults if began < fault < over]
            stood = faults[0] if faults else over
            steps = self.bed.journal.find("spent", generation=generation)
            spent["start_up" if generation == 1 else "restart"] += steps[0]["began"] - began
            for step, after in zip(steps, steps[1:]):  # the loop's own work is training, too
                step["work"] = after["began"] - step["began"] - step["data"] - step["save"]
            for step in steps:
                spent["rework" if step["step"] <= highest else "training"] += step["work"]
                spent["data_wait"] += step["data"]
                spent["checkpoint"] += step["save"]
            finished = steps[-1]["began"] + steps[-1]["work"] + steps[-1]["data"] + steps[-1]["save"]
            # The step that the fault cut off.
            last = steps[-1]["step"] + 1
            cut_off = "ending" if generation not in closing else "rework" if last <= highest else "training"
            spent[cut_off] += max(0, stood - finished)
            spent["detection"] += over - stood
            highest = max(highest, last)
            if generation in closed:
                spent["restart"] += closed[generation] - over
                spent["rendezvous"] += formed[generation + 1] - closed[generation]
        return spent, ended - joined

    def assert_right(self, faults):
        ledger = self.ledger()
        wall = ledger.pop("wall")
        truth, true_wall = self.truth()
        print(f"{faults} faults in {wall:.1f} s\n" + "\n".join(
            f"  {cause:<12} booked {ledger.get(cause, 0):8.3f} s  was {truth.get(cause, 0):8.3f} s"
            for cause in sorted({*ledger, *truth})), file=sys.stderr)
        self.assertAlmostEqual(wall, sum(ledger.values()), delta=0.001 * len(ledger))
        self.assertAlmostEqual(wall, true_wall, delta=BOUND)
        self.assertLessEqual(ledger.get("other", 0), 0.005 * wall)
        for cause, seconds in truth.items():
            self.assertAlmostEqual(ledger.get(cause, 0), seconds, delta=BOUND * SLOWNESS * max(1, faults), msg=cause)
        return ledger


    def freeze_and_lose(self, nodes, worker):
        """All processes of node 1 stand still, as those of a machine that hangs; when it is lost they die."""
        keeper = self.bed.events.find("agent_start", pid=nodes[1].pid)[0]["keeper"]
        self.inject(worker, signal.SIGSTOP)
        os.kill(keeper, signal.SIGSTOP)
        nodes[1].signal(signal.SIGSTOP)
        self.bed.event("node_lost", why="lease expired", alive=nodes[:1])
        # The agent last: when it ends the keeper goes on by itself, kills the worker and ends.
        os.kill(worker, signal.SIGKILL)
        os.kill(keeper, signal.SIGCONT)
        nodes[1].signal(signal.SIGKILL)


class Ledger(GoodputTestCase):
    def test_ten_faults(self):
        """Workers killed on either node, agents killed, one frozen: what each cost is booked as what it was."""
        steps = 800
        nodes = [self.node(0, steps), self.node(1, steps)]
        generation = 0
        for kind in ("worker 1", "worker 0", "agent", "worker 1", "frozen", "worker 0", "agent", "worker 1", "worker 1", "agent"):
            generation += 1
            workers = self.after_steps(generation, 60, nodes)
            if kind.startswith("worker"):
                self.inject(workers[int(kind[-1])]["pid"], signal.SIGKILL)
                continue
            if kind == "frozen":
                self.freeze_and_lose(nodes, workers[1]["pid"])
            else:
                self.inject(nodes[1].pid, signal.SIGKILL)
            nodes[1].wait(20 * SLOW)
            nodes[1] = self.node(1, steps)  # the keeper of the old one ends its worker
        for node in nodes:
            self.assert_status(0, node, timeout=60 * SLOW)
        ledger = self.assert_right(faults=10)
        self.assertGreater(ledger["rework"], 0.1)
        self.assertGreater(ledger["detection"], 1)
        self.assertGreater(ledger["rendezvous"], 0)

    def test_twin_without_faults(self):
        nodes = [self.node(rank, 200) for rank in (0, 1)]
        for node in nodes:
            self.assert_status(0, node)
        ledger = self.assert_right(faults=0)
        for cause in ("rework", "detection", "restart"):
            self.assertEqual(0, ledger.get(cause, 0), cause)

    def test_status_and_metrics_show_it(self):
        nodes = [self.node(rank, 4000) for rank in (0, 1)]
        self.after_steps(1, 120, nodes)
        endpoint = f"127.0.0.1:{self.bed.event('service_listening')['port']}"
        shown = subprocess.run([DDPRUN, "status", "--rdzv_endpoint", endpoint], capture_output=True, text=True,
                               timeout=20 * SLOW, check=True)
        self.assertRegex(shown.stdout, r"goodput \d+\.\d %: .*training \d")
        asked = subprocess.run([DDPRUN, "status", "--json", "--rdzv_endpoint", endpoint], capture_output=True,
                               text=True, timeout=20 * SLOW, check=True)
        job = json.loads(asked.stdout)["jobs"][0]
        self.assertAlmostEqual(int(job["age_ms"]) / 1e3, sum(int(time["us"]) for time in job["ledger"]) / 1e6, delta=0.002)


if __name__ == "__main__":
    unittest.main(verbosity=2)
