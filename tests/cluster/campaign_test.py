#!/usr/bin/env python3
"""Each kind of fault at each moment of a job's life, under plain PyTorch DDP, judged by what the workers wrote down.

An ordinary run takes a sample (the seed is printed; DDPRUN_TEST_SEED repeats it), DDPRUN_CAMPAIGN=all runs every cell,
DDPRUN_CAMPAIGN_CELL="agent killed, saving" this one.
"""

import os
import random
import signal
import time
import unittest

import job
from bed import ROOT, TORCH_PYTHON, torch_ahead, torch_is_there
from scrapes import Scrapes
from seeds import drawn_seed

WORKER = os.path.join(ROOT, "tests", "support", "ddp_worker.py")
SEED = drawn_seed()
SAMPLE = 4
VICTIM = 3
PATIENCE = 90
PAGE = "127.0.0.1:8080"  # on the host of the service

# With what each asks of the agents.
WORKER_KINDS = {"worker killed": [], "worker stopped": ["--on_stopped", "restart"], "worker hung": ["--hang_timeout", 8]}
WORKER_SIGNALS = {"worker killed": signal.SIGKILL, "worker stopped": signal.SIGSTOP, "worker hung": signal.SIGUSR2}
KINDS = (*WORKER_KINDS, "agent killed", "agent frozen", "machine silent", "cut toward the service",
         "cut from the service")
MOMENTS = ("forming", "starting", "running", "saving", "stopping")
# There are no workers yet that could fail.
CELLS = [(kind, moment) for kind in KINDS for moment in MOMENTS if kind not in WORKER_KINDS or moment != "forming"]


class Campaign(job.ClusterTestCase):
    def test_cells(self):
        if not torch_is_there():
            self.skipTest(f"{TORCH_PYTHON} has no torch (scripts/setup installs it)")
        cells = CELLS
        if os.environ.get("DDPRUN_CAMPAIGN") != "all":
            print(f"seed {SEED}", flush=True)
            cells = random.Random(SEED).sample(CELLS, SAMPLE)
        wanted = os.environ.get("DDPRUN_CAMPAIGN_CELL")
        if wanted:
            cells = [cell for cell in CELLS if ", ".join(cell) == wanted]
        for number, (kind, moment) in enumerate(cells):
            # In a sample, the first cell starts as users start; the later ones import torch once a node.
            self.ahead = torch_ahead("torch.nn.parallel", "torch._dynamo") if number > 0 and len(cells) == SAMPLE else []
            if number > 0:
                self.cluster.heal()
                self.doCleanups()
                self.setUp()
            with self.subTest(kind=kind, moment=moment, seed=SEED):
                began = time.monotonic()
                try:
                    self.run_cell(kind, moment)
                except Exception:
                    print(self.bed.story(), flush=True)
                    raise
                print(f"{kind}, {moment}: {time.monotonic() - began:.1f} s", flush=True)

    # ---------------------------------------------------------------- one cell

    def agent(self, host, kind):
        arguments = ["--nnodes", "2:3", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n1:{job.PORT}", "--rdzv_conf",
                     "lease=1,last_call_timeout=30", "--max_restarts", 5, "--grace", 5, *WORKER_KINDS.get(kind, ()), *self.ahead,
                     *(["--status_page", PAGE] if host == 1 else []), "--event_log", self.bed.events.path, WORKER,
                     self.bed.journal.path, self.bed.folder]
        return self.bed.run(f"agent{host}", arguments, host=host, env={"PYTHON_EXEC": TORCH_PYTHON})

    def run_cell(self, kind, moment):
        agents = {}
        for host in (1, VICTIM) if moment == "forming" else (1, 2, VICTIM):
            agents[host] = self.agent(host, kind)
        self.scrapes = Scrapes(self.bed, f"http://{PAGE}/", lambda command: self.cluster.command(1, command))
        self.await_moment(kind, moment)
        fault = time.monotonic()
        self.strike(kind, agents)
        if moment == "forming":
            agents[2] = self.agent(2, kind)
        world = 3 if kind in WORKER_KINDS else 2
        generation = self.await_progress(fault, world, agents)
        self.finish_cell(kind, generation, agents)
        self.judge(fault, generation, kind)

    def await_moment(self, kind, moment):
        node = f"n{VICTIM}"
        if moment == "forming":
            self.bed.wait(lambda: [line for line in self.bed.events.find("node_joined") if line["host"] == node], "join")
        elif moment == "starting" and kind == "worker hung":  # from where on it takes the order
            self.bed.wait(lambda: self.bed.journal.find("worker", host=node), "a worker", PATIENCE)
        elif moment == "starting":
            self.bed.wait(lambda: [line for line in self.bed.events.find("worker_started")
                                   if line["who"].startswith(f"agent:{node}")], "a started worker", PATIENCE)
        elif moment == "running":
            self.bed.wait(lambda: self.bed.journal.find("step", step=3, host=node), "step 3", PATIENCE)
        else:
            self.bed.wait(lambda: self.bed.journal.find("saving"), "a save", PATIENCE)
        if moment == "stopping":
            first = self.bed.journal.find("worker", host="n2")[0]
            os.kill(first["pid"], signal.SIGKILL)
            self.bed.event("round_closing")

    def strike(self, kind, agents):
        if kind in WORKER_KINDS:
            started = self.bed.wait(lambda: [line for line in self.bed.events.find("worker_started")
                                             if line["who"].startswith(f"agent:n{VICTIM}")], "its agent's word")
            try:
                os.kill(started[-1]["worker_pid"], WORKER_SIGNALS[kind])
            except ProcessLookupError:
                pass  # stopped already
        elif kind == "agent killed":
            agents[VICTIM].signal(signal.SIGKILL)
        elif kind == "agent frozen":
            agents[VICTIM].signal(signal.SIGSTOP)
        elif kind == "machine silent":
            self.cluster.pull_cable(VICTIM)
        elif kind == "cut toward the service":
            self.cluster.cut_one_way(VICTIM, 1)
        else:
            self.cluster.cut_one_way(1, VICTIM)

    def await_progress(self, fault, world, agents):
        """The generation in which all ranks have done three steps that began after the fault was dealt with."""
        def trained():
            done = {}
            for line in self.bed.journal.find("step", fault):
                if line["world"] == world and self.is_newest(line["generation"]):
                    done.setdefault(line["generation"], {}).setdefault(line["rank"], set()).add(line["step"])
            return [generation for generation, ranks in done.items()
                    if len(ranks) == world and all(len(steps) >= 3 for steps in ranks.values())]
        alive = [agents[host] for host in agents if host != VICTIM]
        return self.bed.wait(trained, f"training with {world} ranks", PATIENCE, alive)[-1]

    def is_newest(self, generation):
        newest = max((int(line["generation"]) for line in self.bed.events.find("generation")), default=0)
        closing = {int(line["generation"]) for line in self.bed.events.find("round_closing")}
        return generation == newest and generation not in closing

    def finish_cell(self, kind, generation, agents):
        workers = [line for line in self.bed.journal.find("worker", generation=generation) if line["rank"] == 0]
        self.bed.finish(workers)
        for host, agent in agents.items():
            if host != VICTIM or kind in WORKER_KINDS:
                self.assert_status(0, agent)

    # ---------------------------------------------------------------- what must hold

    def judge(self, fault, last, kind):
        self.bed.follower.refresh()
        steps = self.bed.journal.find("step")
        self.check_parameters(steps)
        self.check_resumes()
        # Once the last generation has trained a step, only a node that the service can't reach may train in an older one.
        begun = min(line["t"] for line in steps if line["generation"] == last)
        late = [line for line in steps if line["generation"] < last and line["t"] > begun and line["host"] != f"n{VICTIM}"]
        self.assertEqual([], late)
        self.assertEqual(sorted({line["generation"] for line in steps}), self.order_of_generations(steps))
        if kind in WORKER_KINDS:
            self.assertEqual([], self.bed.events.find("node_lost", fault))
        self.assertEqual([], self.scrapes.falls())
        self.assertTrue(self.scrapes.last())

    def check_parameters(self, steps):
        """All ranks have the same parameters after the same step of a generation."""
        digests = {}
        for line in steps:
            digests.setdefault((line["generation"], line["step"]), set()).add(line["parameters"])
        self.assertEqual({}, {key: found for key, found in digests.items() if len(found) > 1})

    def check_resumes(self):
        """A generation begins where the newest whole save was, and what is saved is never older than before."""
        for line in self.bed.journal.find("begins"):
            if line["rank"] != 0:
                continue
            saved = [save["step"] for save in self.bed.journal.find("saved") if save["t"] < line["t"]]
            # A worker renames the checkpoint before it writes the line "saved".
            saving = [save["step"] for save in self.bed.journal.find("saving") if save["t"] < line["t"]]
            self.assertIn(line["step"], {max(saved, default=0), max(saving, default=0)})

    @staticmethod
    def order_of_generations(steps):
        order = []
        for line in steps:
            if line["generation"] not in order and line["host"] != f"n{VICTIM}":
                order.append(line["generation"])
        return order


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    job.main()
