"""A training of Sessions whose number of workers walks while workers and nodes are killed, leave and join.

Each worker writes down what it learns from in each backward pass, before anybody knows whether that step will count, and each
step that it has done, with a digest of its parameters. What counts is the history of the last parameters: the step that led to
them, the one that led to what that began with, and so on. Used by a test and, whole, by a benchmark.
"""

import fcntl
import math
import os
import re
import signal
import statistics
import threading
import time

from bed import Bed, TimelineError
from survivors import PATIENCE, PROBE, Wrong, require

SIZE = 243  # samples: the probe's
PORT = 29400
HOST = 1  # has the service; its worker may be killed, its agent isn't
# Weights are products of a few numbers in double, which the journal rounds to nine digits.
SAME_WEIGHT = 1e-7


class History:
    """The steps that the last parameters come from, latest first: [(step, generation, lines)]; `lines` by rank and pass."""

    def __init__(self, lines):
        self.learned, self.done = {}, {}
        for line in lines:
            if line["event"] == "learned":
                self.learned.setdefault((line["step"] + 1, line["generation"]), []).append(line)
            elif line["event"] == "step":
                self.done.setdefault((line["step"], line["digest"]), set()).add(line["generation"])
        for step, generation in self.learned:
            digests = {digest for (done, digest), generations in self.done.items() if done == step and generation in generations}
            require(len(digests) <= 1, f"ranks have different parameters after step {step} of generation {generation}")
        self.steps = list(self._back_from_the_end())

    def _back_from_the_end(self):
        last = max(step for step, _ in self.done)
        generation, digest = max((max(of), digest) for (step, digest), of in self.done.items() if step == last)
        for step in range(last, 0, -1):
            did = [of for of in self.done.get((step, digest), ()) if of <= generation]
            require(did, f"generation {generation} went on with parameters of step {step} that no rank has computed")
            generation = max(did)
            lines = self.learned[step, generation]
            require({line["rank"] for line in lines} == set(range(lines[0]["world"])),
                    f"step {step} of generation {generation} was done without some ranks")
            # A worker that is healed beside the step doesn't learn from it.
            before = {line["before"] for line in lines if line["weight"] != 0}
            require(len(before) == 1, f"ranks began step {step} of generation {generation} with different parameters")
            yield step, generation, lines
            digest = before.pop()


def weights_of(lines):
    """[(sample, its part of the step's gradient)] of one step: the mean over the ranks of what each pass adds."""
    return [(sample, line["weight"] / len(line["samples"]) / line["world"])
            for line in lines if line["weight"] != 0 for sample in line["samples"]]


def check_samples(history, epochs, size=SIZE):
    """Each sample was learned from once in each epoch, and weighs as much as the others of its step."""
    seen = {}
    for step, generation, lines in history.steps:
        learned = weights_of(lines)
        for sample, weight in learned:
            fair = abs(weight * len(learned) - 1) <= SAME_WEIGHT
            require(fair, f"sample {sample} weighs {weight:g} among {len(learned)} of step {step} of generation {generation}")
            times = seen.setdefault(lines[0]["epoch"], {})
            times[sample] = times.get(sample, 0) + 1
    require(sorted(seen) == list(range(epochs)), f"there were epochs {sorted(seen)} of {epochs}")
    for epoch, times in sorted(seen.items()):
        repeated = sorted(sample for sample, count in times.items() if count > 1)
        lost = sorted(set(range(size)) - set(times))
        require(not repeated, f"epoch {epoch}: {len(repeated)} samples were learned from twice, such as {repeated[:3]}")
        require(not lost, f"epoch {epoch}: {len(lost)} samples were left out, such as {lost[:3]}")


class ElasticTraining:
    """A job of nodes of one worker each, on the hosts of a cluster; as many of them as the moment wants."""

    def __init__(self, rng, hosts, options, launch=(), environment=None):
        self.bed, self.rng, self.hosts = Bed(hosts), rng, hosts
        self.bed.environment.update(environment or {})
        self.options, self.launch = [*options, "--in_process_restart"], launch
        self.most = hosts.count
        self.agents = {}  # host: its agent, if it is in the job
        self.former = []
        self.faults = {}  # kind: how many
        self.moments = []  # steps done at each fault
        self.checkpoints = False
        self._read_to = 0
        self._events_to = 0
        self.newest = {}  # of the newest generation with a step: its number, world, steps by rank
        self.steps_done = 0
        self._trained = set()
        self._pids = {}  # pid: host, of workers that haven't ended
        self._started = {}  # host: agents that were started there
        self._gate = os.open(self.bed.journal.path + ".gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    # ---------------------------------------------------------------- what there is

    def look(self):
        """Reads on in journal and event log."""
        lines = self.bed.journal.lines
        for line in lines[self._read_to:]:
            if line["event"] != "step":
                continue
            if line["generation"] > self.newest.get("generation", 0):
                self.newest = {"generation": line["generation"], "world": line["world"], "steps": {}}
            if line["generation"] == self.newest["generation"]:
                steps = self.newest["steps"]
                steps[line["rank"]] = steps.get(line["rank"], 0) + 1
                self.steps_done = line["step"]
            self._trained.add(line["pid"])
        self._read_to = len(lines)
        events = self.bed.events.lines
        for line in events[self._events_to:]:
            if line["event"] == "worker_started":
                self._pids[int(line["worker_pid"])] = int(re.search(r"agent:n(\d+)", line["who"]).group(1))
            elif line["event"] == "worker_exit":
                self._pids.pop(int(line["worker_pid"]), None)
        self._events_to = len(events)

    def workers(self):
        """{pid: host} of the workers that live."""
        self.bed.follower.refresh()
        self.look()
        return {pid: host for pid, host in self._pids.items() if host in self.agents}

    def holders(self):
        """Those of them that have the state."""
        return {pid: host for pid, host in self.workers().items() if pid in self._trained}

    @property
    def world(self):
        return len(self.agents)

    def wait_for_steps(self, count, world=None, after=0):
        """Until all ranks of a generation after that one, of this size, have done so many steps."""
        def done():
            self.look()
            new = self.newest.get("generation", 0) > after and self.newest["world"] == (world or self.world)
            return new and len(self.newest["steps"]) == self.newest["world"] and min(self.newest["steps"].values()) >= count
        what = f"{count} steps of {world or self.world} ranks in a generation after {after}"
        self.bed.wait(done, what, PATIENCE, self.agents.values())

    def wait_for_step(self, step):
        """Until so many have been done."""
        def done():
            self.look()
            return self.steps_done >= step
        self.bed.wait(done, f"step {step:.0f}", PATIENCE, self.agents.values())

    @property
    def generation(self):
        self.bed.follower.refresh()
        self.look()
        return self.newest.get("generation", 0)

    # ---------------------------------------------------------------- what happens

    def start_node(self, host):
        number = self._started[host] = self._started.get(host, 0) + 1
        job = ["--no_python", "--nnodes", f"1:{self.most}", "--nproc_per_node", 1, "--max_restarts", 100000,
               "--membership_changes", 100000, "--quarantine_after", 0, "--crash_loop", 0, "--rdzv_backend", "c10d",
               "--rdzv_endpoint", f"n{HOST}:{PORT}", "--rdzv_conf", "lease=1,last_call_timeout=1", *self.launch,
               "--event_log", self.bed.events.path]
        self.agents[host] = self.bed.run(f"node{host}.{number}", [*job, PROBE, "walk", self.bed.journal.path, *self.options],
                                         host=host)

    def save(self, every):
        """All workers may be lost from now on: they go on from a checkpoint."""
        self.checkpoints = True
        self.options += ["--checkpoint_dir", self.bed.path("checkpoints"), "--checkpoint_every", every]

    def _count(self, kind):
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.moments.append(self.steps_done)

    def kill_worker(self):
        """kill -9 for a worker at a random moment of a step; not for the last one that has the state."""
        threading.Event().wait(self.rng.uniform(0, 0.03))  # the kernel's timer decides, not the job's progress
        holders = self.holders()
        victims = [pid for pid in self.workers() if list(holders) != [pid]]
        if not victims:
            return False
        return self._kill(self.rng.choice(victims), "killed worker")

    def kill_all_workers(self):
        """What they had done since the last checkpoint is lost."""
        threading.Event().wait(self.rng.uniform(0, 0.03))
        for pid in self.workers():
            self._kill(pid, "killed with all others")
        return True

    def _kill(self, pid, kind):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._pids.pop(pid, None)
        self._count(kind)
        return True

    def remove_node(self, kind):
        """Takes a node away that has no service, unless the state would go with it: a kind of LEAVING."""
        holders = self.holders()
        hosts = [host for host in self.agents if host != HOST and set(holders.values()) - {host}]
        if not hosts:
            return False
        host = self.rng.choice(hosts)
        agent = self.agents.pop(host)
        self.former.append(agent)
        if kind == "node without power":
            self.hosts.power_off(host)
            agent.wait(PATIENCE)
            self.hosts.power_on(host)
        elif kind == "killed agent":
            agent.signal(signal.SIGKILL)
            agent.wait(PATIENCE)
        else:
            agent.signal(signal.SIGTERM)
            agent.wait(PATIENCE)
        self.workers()
        self._pids = {pid: of for pid, of in self._pids.items() if of != host}  # nobody tells of their end
        self._count(kind)
        return True

    def walk_to(self, world):
        """Nodes join or leave, some at once, until there are so many; ends when all of them have done a step together."""
        generation, closed = self.generation, len(self.bed.events.find("round_closing"))
        if world == self.world:
            return
        if world > self.world:
            self._join(world - self.world, closed)
        while self.world > world:
            if not self.remove_node(self.rng.choice(LEAVING)):
                self.wait_for_steps(1)  # until others have the state
        self.wait_for_steps(self.rng.randrange(1, 4), after=generation)

    def _join(self, count, closed):
        """Newcomers come into the next generation, after so many that have ended: by themselves, which the service allows the
        more rarely the less earlier ones stayed (R3), or with the next fault. Training waits for them at its gate, so as not to
        be over; not in the moment of a fault, nor when it has to let go."""
        def closing():
            return len(self.bed.events.find("round_closing")) > closed
        self._hold(True)
        try:
            for _ in range(count):
                self.start_node(self.rng.choice([host for host in range(1, self.most + 1) if host not in self.agents]))
                self._count("joined node")
            self.bed.wait(lambda: closing() or all(self._is_in(host) for host in self.agents), "newcomers at the service",
                          PATIENCE, self.agents.values())
            if not closing() and len(self.holders()) > 1:
                self._hold(False)
                self.kill_worker()
            self.bed.wait(closing, "newcomers to be taken in", PATIENCE, self.agents.values())
        finally:
            self._hold(False)

    def _hold(self, closes):
        fcntl.flock(self._gate, fcntl.LOCK_EX if closes else fcntl.LOCK_UN)

    def _is_in(self, host):
        """Whether the service knows the node's newest agent."""
        started = self.agents[host].started
        return any(line["t"] > started and re.match(rf"agent:n{host}\b", line.get("who", ""))
                   for line in self.bed.events.find("standby") + self.bed.events.find("assignment"))

    # ---------------------------------------------------------------- ends

    def finish(self):
        """Waits for the good end of all nodes; returns the lines that each rank wrote at its end."""
        for host, agent in sorted(self.agents.items()):
            status = agent.wait(PATIENCE)
            require(status == 0, f"node {host} ended with {status}")
        self.bed.follower.refresh()
        self.look()
        return self.bed.journal.find("final")

    def story(self):
        return "\n".join(line for line in self.bed.story().split("\n") if not re.match(r" +\S+ worker +(step|learned) ", line))

    def close(self):
        left = self.bed.stop()
        os.close(self._gate)
        self.bed.close()
        require(not left, f"processes outlived their agents: {left}")

    # ---------------------------------------------------------------- faults

    def inject_until(self, step):
        """The world walks between 1 and the number of hosts, and workers are killed, until that step."""
        self.start_node(HOST)
        self.wait_for_steps(2)
        worlds = []
        visits = self.rng.randrange(3, 6)  # of other sizes, until there is one worker again
        while self.steps_done < step:
            if not worlds:
                worlds = list(range(2, self.most + 1))
                self.rng.shuffle(worlds)
            visits -= 1
            self.walk_to(1 if visits == 0 else worlds.pop())
            for _ in range(self.rng.randrange(3)):
                if self.steps_done < step:
                    self._fail_workers()
        self.wait_for_steps(1)

    def _fail_workers(self):
        generation = self.generation
        everybody = self.checkpoints and self.rng.randrange(3) == 0
        if self.kill_all_workers() if everybody else self.kill_worker():
            self.wait_for_steps(self.rng.randrange(1, 20), after=generation)
        else:
            self.wait_for_steps(2)


LEAVING = ("killed agent", "killed agent", "stopped agent", "node without power")


def conduct(training, run):
    """run(training), with its story where that goes wrong. Errors: Wrong, TimelineError."""
    began = time.monotonic()
    try:
        result = run(training)
        training.seconds = time.monotonic() - began
        return result
    except (Wrong, TimelineError, AssertionError):
        print(training.story(), flush=True)
        raise
    finally:
        training.close()


# ---------------------------------------------------------------- each sample once an epoch


EPOCH_STEPS = 21  # of 12 samples, the last one of three: some of more than three workers have none


def walking(rng, hosts, epochs, checkpoints=False, launch=(), environment=None):
    """A training of so many epochs; its first worker makes three passes a step."""
    options = ["--epochs", epochs, "--batch_size", 4, "--gradient_accumulation_steps", 3, "--learning_rate", 0.1, "--lr_schedule",
               "constant", "--step_delay_ms", 20, "--num_workers", 1, "--healing", "beside"]
    training = ElasticTraining(rng, hosts, options, launch, environment)
    if checkpoints:
        training.save(every=5)
    return training


def walk(training, epochs):
    """A whole walking() training, and whether it has kept its promise. Errors: Wrong, TimelineError."""
    # Not to the very end: a worker that has done the last step ends, and is nobody's source any more.
    training.inject_until((epochs - 1) * EPOCH_STEPS)
    training.finish()
    lines = training.bed.journal.lines
    training.history = History(lines)
    check_samples(training.history, epochs)
    worlds = [of[0]["world"] for _, _, of in training.history.steps]
    training.steps_by_world = {world: worlds.count(world) for world in sorted(set(worlds))}
    training.done_again = len(training.history.learned) - len(training.history.steps)
    training.generation_count = len({generation for _, generation in training.history.learned})
    missing = set(range(1, training.most + 1)) - set(worlds)
    require(not missing, f"no step was done on {sorted(missing)} workers")


# ---------------------------------------------------------------- the loss at the end


WORLD = 4  # before and after the faults
LEARNING_RATE = 0.3
WEIGHT_DECAY = 0.1
FALL_EPOCHS = 60
FALL_STEPS = 11  # of an epoch
SAME_LOSS = 1e-5
# Student's t for two sides and 1 in 100, by degrees of freedom.
T_99 = {3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250}


def falling(rng, hosts, seed, per_worker=False, epochs=FALL_EPOCHS):
    """A training whose learning rate falls to zero; a step has 24 samples, or six of each worker."""
    options = ["--epochs", epochs, "--batch_size", 6, "--learning_rate", LEARNING_RATE, "--lr_schedule", "linear", "--seed", seed,
               "--weight_decay", WEIGHT_DECAY, "--step_delay_ms", 10, "--constant_batch", "worker" if per_worker else "step"]
    return ElasticTraining(rng, hosts, options)


def fall(training, faults, epochs=FALL_EPOCHS):
    """A whole falling() training with so many faults over its first three quarters: of workers, or of nodes, so that the number
    of workers changes; then there are as many as at the beginning. Returns what its ranks say at the end.
    Errors: Wrong, TimelineError."""
    for host in range(1, WORLD + 1):
        training.start_node(host)
    training.wait_for_steps(1)
    pace = epochs * FALL_STEPS * 0.75 / max(faults, 1)
    while len(training.moments) < faults:
        training.wait_for_step(pace * len(training.moments))
        generation = training.generation
        if len(training.moments) % 3 == 2 and training.kill_worker():  # the first is one of nodes
            training.wait_for_steps(1, after=generation)
        else:
            others = [world for world in range(2, training.most + 1) if world != training.world]
            training.walk_to(training.rng.choice(others))
    training.walk_to(WORLD)
    began_last = training.generation
    finals = training.finish()
    require(len(finals) == WORLD and all(final["generation"] == began_last for final in finals), "faults until the very end")
    require(len({final["digest"] for final in finals}) == 1, "ranks end with different parameters")
    history = History(training.bed.journal.lines)
    check_samples(history, epochs)
    worlds = [lines[0]["world"] for _, _, lines in history.steps]
    training.steps_by_world = {world: worlds.count(world) for world in sorted(set(worlds))}
    length = max(line["length"] for line in training.bed.journal.find("step"))
    return {**finals[0], "length": length}


def noise(losses):
    """The interval in which another loss of the same distribution lies in 99 of 100 cases: mean ± t·s·sqrt(1 + 1/n), because both
    mean and spread s are those of a sample of n."""
    count, mean = len(losses), statistics.mean(losses)
    reach = T_99[count - 1] * statistics.stdev(losses) * math.sqrt(1 + 1 / count)
    return mean - reach, mean + reach


def rounding(final):
    """How far apart, relative to the loss, two trainings can end that do the same steps and add up in other orders.

    A step is w − r·g. g is the mean of the 24 gradients of a loss that is convex in w, plus WEIGHT_DECAY·w; the loss'
    second derivative is at most L = |x|²/2 with |x|² <= 5 (four inputs of at most 1, and the bias; softmax's own is at most
    1/2). At rates r below 2/(L + 2·WEIGHT_DECAY) two points are no further apart after such a step than 1 − r·WEIGHT_DECAY
    times what they were before, so what rounding does in each step is not multiplied, and in time forgotten. What it does
    in one: g, which is no longer than sqrt(2·5) + WEIGHT_DECAY·|w|, is wrong by n·u of that, with u = 2^-24 and n = 56 the
    operations behind one another: 24 additions over samples, passes and ranks in any order, and 32 more from the inputs to
    it (5 products and additions, the largest subtracted, exponentials, their sum, logarithm, the weights of shares, decay,
    rate); and w is rounded once more, by u of its length. The rate falls evenly from LEARNING_RATE to 0. Two trainings are
    each so far from the exact one, and the loss changes with a distance d by no more than gradient·d + (L +
    WEIGHT_DECAY)·d²/2."""
    smooth, unit, operations, steps = 5 / 2, 2.0 ** -24, 24 + 32, final["step"]
    require(LEARNING_RATE < 2 / (smooth + 2 * WEIGHT_DECAY), "with this rate steps may push points apart")
    apart = 0
    for step in range(steps):
        rate = LEARNING_RATE * (1 - step / steps)
        wrong = rate * operations * unit * (math.sqrt(10) + WEIGHT_DECAY * final["length"]) + unit * final["length"]
        apart = (1 - rate * WEIGHT_DECAY) * apart + 2 * wrong
    return (final["gradient"] * apart + (smooth + WEIGHT_DECAY) * apart ** 2 / 2) / final["loss"]
