#!/usr/bin/env python3
"""Kills workers of the same Python training under ddprun, torchft, NVRx and torchrun, and judges by journals of the workers.

python_survivors_bench.py [--kills N] [--seed N] [--json FILE] [--only NAME]... [--python NAME=INTERPRETER]...

Three workers train on CPUs over Gloo (bench/python_survivors). They are killed with SIGKILL, one after the other, each time when
all train again. For each system:

- kill -> next step: the first step that is done and was begun after the kill, by any worker; and by all workers that there were;
- steps lost or done twice: how far the newest step after a kill is from the newest before it;
- survivors restarted: processes that had trained, weren't killed, and didn't end the training;
- samples of whole epochs from which the final parameters have not learned, or more than once, where a step's number says its
  epoch; batches that survivors dropped; steps with fewer workers;
- whether the final parameters are, bit by bit, those of the same system without a kill;
- lines that the script has more than a plain DDP script.

A system that can't run is reported with its error. torchft goes on with the workers that are left, NVRx takes a spare process,
and its rank 0 isn't killed, because it has the store. --python NAME=INTERPRETER is the Python of a system (several times for
several versions): `pip install torchft nvidia-resiliency-ext`, with torch 2.11. Exit status 1 if ddprun loses a step, repeats
more than one for a kill, restarts a survivor, or ends with other bits.
"""

import argparse
import collections
import datetime
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
SCRIPTS = os.path.join(ROOT, "bench", "python_survivors")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import DDPRUN, TORCH_PYTHON, Bed, TimelineError, free_port  # noqa: E402

WORKERS, PATIENCE = 3, 300
SETTLED = 5  # steps of all before the next kill
PER_EPOCH, EPOCH = 40, 480  # steps, samples


class System:
    """How one system runs the training. ends: the training ends by itself, after all kills; False: survivors don't wait for the
    new worker, so it is ended after the last kill."""

    name, package = "", ""
    ends, agents_last = True, True

    def __init__(self, python, kills):
        self.python, self.kills = python, kills
        self.steps = PER_EPOCH * (kills + 2) if self.ends else 1000000

    @property
    def script(self):
        return os.path.join(SCRIPTS, f"with_{self.name}.py")

    def label(self):
        if not self.package:
            return self.name
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        done = subprocess.run([self.python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        return f"{self.name} {done.stdout.strip() or 'not there: ' + done.stderr.strip().splitlines()[-1]}"

    def start(self, bed, journal):
        raise NotImplementedError

    def torchrun(self, bed, name, workers, arguments, env=None):
        command = [self.python, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", str(workers),
                   "--max_restarts", str(2 * self.kills + 2), *arguments]
        return bed.start_process(name, command, output=bed.path(f"{name}.out"), env={
            **bed.environment, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": self.python, **(env or {})})

    def may_be_killed(self, rank):
        return True


class Ddprun(System):
    """New workers import torch when they start, as those of the other systems."""

    name, options = "ddprun", ("--warm", "off")

    def start(self, bed, journal):
        return [bed.run("ddprun", ["--nproc_per_node", WORKERS, *self.options, self.script, journal, self.steps],
                        env={"OMP_NUM_THREADS": "1", "PYTHON_EXEC": self.python,
                             "PYTHONPATH": os.path.join(ROOT, "python")})]  # as an installed package is found


class WarmDdprun(Ddprun):
    """New workers are forks of an interpreter that has imported torch, which is the default of jobs that may be restarted."""

    options = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch._dynamo,ddprun.elastic")

    def label(self):
        return "ddprun, warm"


class Torchrun(System):
    name, package = "torchrun", "torch"

    def start(self, bed, journal):
        return [self.torchrun(bed, "torchrun", WORKERS, ["--standalone", self.script, journal, str(self.steps)])]


class Torchft(System):
    name, package, ends = "torchft", "torchft", False
    model = "DistributedDataParallel"

    def start(self, bed, journal):
        port = free_port()
        lighthouse = os.path.join(os.path.dirname(self.python), "torchft_lighthouse")
        agents = [bed.start_process("lighthouse", [lighthouse, "--min_replicas", "1", "--quorum_tick_ms", "100",
                                                   "--join_timeout_ms", "10000", "--bind", f"[::]:{port}"],
                                    output=bed.path("lighthouse.out"), env=bed.environment)]
        for replica in range(WORKERS):
            env = {"TORCHFT_LIGHTHOUSE": f"http://localhost:{port}", "REPLICA_GROUP_ID": str(replica),
                   "NUM_REPLICA_GROUPS": str(WORKERS), "TORCHFT_DDP": self.model}
            arguments = ["--standalone", self.script, journal, str(self.steps)]
            agents.append(self.torchrun(bed, f"replica{replica}", 1, arguments, env))
        return agents


class PureTorchft(Torchft):
    """With torchft's other class, which has one all-reduce for each parameter."""

    model = "PureDistributedDataParallel"

    def label(self):
        return f"{super().label()}, {self.model}"


class Nvrx(System):
    name, package, agents_last = "nvrx", "nvidia-resiliency-ext", False  # its workers have no agents

    def start(self, bed, journal):
        port = free_port()
        everybody = WORKERS + self.kills
        return [bed.start_process(f"worker{rank}", [self.python, self.script, journal, str(self.steps)],
                                  output=bed.path(f"worker{rank}.out"),
                                  env={**bed.environment, "OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank),
                                       "WORLD_SIZE": str(everybody), "LOCAL_WORLD_SIZE": str(everybody), "ACTIVE": str(WORKERS),
                                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                for rank in range(everybody)]

    def may_be_killed(self, rank):
        return rank != 0


SYSTEMS = {"ddprun-warm": WarmDdprun, "ddprun": Ddprun, "torchft": Torchft, "torchft-pure": PureTorchft, "nvrx": Nvrx,
           "torchrun": Torchrun}


class Run:
    """One training of a system."""

    def __init__(self, system, kills, rng):
        self.system, self.kills, self.rng = system, kills, rng
        self.bed = Bed()
        self.journal = self.bed.follower.follow(self.bed.path("steps.jsonl"))
        self.killed = {}  # pid: moment
        self.agents = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bed.stop()
        self.bed.close()

    def play(self):
        self.agents = self.system.start(self.bed, self.journal.path)
        after = 0.0
        for _ in range(self.kills):
            self.wait_for_all(after)
            threading.Event().wait(self.rng.uniform(0, 0.05))  # the kernel's timer decides, not the job's progress
            after = self.kill_one()
        self.wait_for_all(after)
        if self.system.ends:
            self.bed.wait(lambda: len(self.journal.find("end")) >= WORKERS, "the training's end", PATIENCE)
        self.bed.follower.refresh()

    def kill_one(self):
        newest = [line for line in self.journal.find("step")[-SETTLED * WORKERS:] if line["pid"] not in self.killed]
        pid = self.rng.choice(sorted({line["pid"] for line in newest if self.system.may_be_killed(line["rank"])}))
        self.killed[pid] = time.monotonic()
        os.kill(pid, 9)
        return self.killed[pid]

    def wait_for_all(self, after):
        def settled():
            begun = collections.Counter(line["pid"] for line in self.journal.find("step", after) if line["began"] > after)
            return sum(count >= SETTLED for count in begun.values()) >= WORKERS
        self.bed.wait(settled, f"steps of {WORKERS} workers", PATIENCE, self.agents if self.system.agents_last else ())

    def said(self):
        """The last lines of what the processes have written."""
        return "\n".join(line for agent in self.agents for line in agent.text().strip().splitlines()[-4:])[-1500:]

    # ---- what the journal says

    def digest(self):
        ends = {line["digest"] for line in self.journal.find("end")}
        return ends.pop() if len(ends) == 1 else None

    def stalls(self):
        """Milliseconds from each kill to the next step of any, and of all workers."""
        first, everybody = [], []
        for moment in self.killed.values():
            lines = [line for line in self.journal.find("step", moment) if line["began"] > moment]
            first.append(1000 * (min(line["t"] for line in lines) - moment))
            by_pid = {}
            for line in lines:
                by_pid.setdefault(line["pid"], line["t"])
            everybody.append(1000 * (sorted(by_pid.values())[WORKERS - 1] - moment))
        return first, everybody

    def again(self):
        """Of each kill: steps that were done again; less than none: steps that are missing."""
        counts = []
        for moment in self.killed.values():
            steps = self.journal.find("step")
            before = max(line["step"] for line in steps if line["began"] <= moment)
            after = [line for line in steps if line["began"] > moment]
            counts.append(before + 1 - min(after, key=lambda line: line["t"])["step"])
        return counts

    def restarted(self):
        """Processes that had trained and ended, without being killed."""
        newest = max(line["t"] for line in self.journal.find("step"))
        pids = {line["pid"]: line["t"] for line in self.journal.find("step")}
        ends = {line["pid"] for line in self.journal.find("end")}
        last = newest if self.system.ends else min(sorted(pids.values())[-WORKERS:])
        others = {pid: moment for pid, moment in pids.items() if pid not in ends and pid not in self.killed}
        return sum(self.system.ends or moment < last for moment in others.values())

    def samples(self):
        """How many samples of the whole epochs are in the parameters no time, and how many more than once."""
        newest = {}
        for line in self.journal.find("step"):
            newest[line["step"], line["rank"]] = line  # of a step that was done again, the last time counts
        by_step = collections.defaultdict(list)
        for (step, _), line in newest.items():
            by_step[step].append(line)
        seen, unwritten = collections.Counter(), self.unwritten()
        for step, lines in by_step.items():
            lines = [line for line in lines if line["world"] == lines[-1]["world"]]
            begun = min(line["began"] for line in lines)
            # A worker that was killed before it could write its line, or took a peer's state after the step, has none.
            for _ in range(lines[0]["world"] - len(lines)):
                ranks = {line["rank"] for line in lines}
                others = [line for line in unwritten if line["rank"] not in ranks and abs(line["t"] - begun) < 5]
                if others:
                    lines.append(min(others, key=lambda line: abs(line["t"] - begun)))
                    unwritten.remove(lines[-1])
            seen.update(((step - 1) // PER_EPOCH, sample) for line in lines for sample in line["samples"])
        epochs = max(by_step) // PER_EPOCH
        every = [seen[epoch, sample] for epoch in range(epochs) for sample in range(EPOCH)]
        return sum(count == 0 for count in every), sum(count > 1 for count in every)

    def dropped(self):
        """How many batches processes that went on have begun, and neither done nor begun again."""
        begun = collections.defaultdict(list)
        for line in self.journal.find("begin"):
            begun[line["pid"]].append((line["t"], line["samples"]))
        count = 0
        for line in self.unwritten():
            later = [samples for moment, samples in begun[line["pid"]] if moment > line["t"]]
            count += bool(later) and later[0] != line["samples"]
        return count

    def short_steps(self):
        return len({line["step"] for line in self.journal.find("step") if line["world"] < WORKERS})

    def unwritten(self):
        """The steps that a worker has begun, without a line that it has done them."""
        found, begun = [], {}
        for line in self.journal.lines:
            before = begun.pop(line["pid"], None)
            if line["event"] == "begin":
                begun[line["pid"]] = line
                found += [before] if before is not None else []
        return found + list(begun.values())


def summary(values):
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 1), "p95": round(ordered[math.ceil(0.95 * len(ordered)) - 1], 1),
            "max": round(ordered[-1], 1)}


def lines_of(path):
    """Lines of code, without those for the journal."""
    with open(path, encoding="utf-8") as source:
        text = source.read().split('"""', 2)[2]
    return sum(bool(line.strip()) and "journal" not in line.lower() for line in text.splitlines())


def measure(system, kills, rng):
    undisturbed = None
    if system.ends:
        with Run(system, 0, rng) as run:
            run.play()
            undisturbed = run.digest()
    with Run(system, kills, rng) as run:
        try:
            run.play()
        except TimelineError as error:
            print(*(agent.text() for agent in run.agents), sep="\n", file=sys.stderr)
            return {"error": str(error), "kills": len(run.killed), "said": run.said()}
        first, everybody = run.stalls()
        again, (never, often) = run.again(), run.samples() if system.ends else (None, None)
        return {"kills": kills, "next_step_ms": summary(first), "all_again_ms": summary(everybody),
                "steps_done_twice": sum(max(0, one) for one in again), "steps_lost": sum(max(0, -one) for one in again),
                "survivors_restarted": run.restarted(), "samples_never": never, "samples_often": often,
                "batches_dropped": run.dropped(), "steps_of_fewer": run.short_steps(),
                "same_bits": None if undisturbed is None else run.digest() == undisturbed}


def write(arguments, results):
    with open(arguments.json, "w", encoding="utf-8") as sink:
        json.dump({"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "workers": WORKERS, "seed": arguments.seed,
                   "results": results}, sink, indent=1)


def keeps_promises(result):
    return "error" not in result and result["same_bits"] and not result["steps_lost"] and not result["survivors_restarted"] and \
        result["steps_done_twice"] <= result["kills"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--json", default=os.path.join(ROOT, "bench", "results", "python_survivors.json"))
    parser.add_argument("--only", action="append", choices=list(SYSTEMS))
    parser.add_argument("--python", action="append", default=[], metavar="NAME=INTERPRETER")
    arguments = parser.parse_args()
    if shutil.which(TORCH_PYTHON) is None or not os.access(DDPRUN, os.X_OK):
        print("skipped: no torch, or no ddprun")
        return 77
    given = [one.split("=", 1) for one in arguments.python]
    results, load = {}, []
    print(f"seed {arguments.seed}", flush=True)
    plain = lines_of(os.path.join(SCRIPTS, "with_nothing.py"))
    for name in arguments.only or SYSTEMS:
        for python in [path for one, path in given if one == name] or [TORCH_PYTHON]:
            system = SYSTEMS[name](python, arguments.kills)
            label, started = system.label(), os.getloadavg()[0]
            try:
                result = measure(system, arguments.kills, random.Random(arguments.seed))
            except (TimelineError, OSError) as error:
                result = {"error": str(error)}
            load.append(round(started, 1))
            results[label] = {**result, "lines_more": lines_of(system.script) - plain, "load": load[-1]}
            print(label, json.dumps(results[label]), flush=True)
            write(arguments, results)
    ours = [result for label, result in results.items() if label.startswith("ddprun")]
    return 0 if all(keeps_promises(result) for result in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
