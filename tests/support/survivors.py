"""A training of Sessions whose workers are killed at random moments: the others go on in their processes.

Each worker writes down every step that it has done, with a digest of its parameters. Used by a test and, with many kills, by
a benchmark.
"""

import os
import re
import signal
import threading
import time

from bed import SLOW, Bed, TimelineError, free_port

PROBE = os.environ.get("DDPRUN_SESSION_PROBE")
PATIENCE = 60 * SLOW
# One kill in so many comes while the workers still meet after the one before.
DURING_RECOVERY = 4


class Wrong(Exception):
    """What a training has shown that mustn't be."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


def check_steps(lines, victims, sharded=False):
    """No worker has left a step out, and all have the same parameters after each. `lines`: what workers wrote after steps.

    A step is done again if all workers that had done it are killed before the others have its result. If a worker is healed
    beside the step, the second result has other bits, because the samples are divided differently: no living worker may have
    the first result. If each rank alone has a share of the state (`sharded`), all ranks go back to the copies, by one step at
    most, and each rank gets the same result again.
    """
    last, done, newest = {}, {}, {}
    for line in lines:
        before = last.get(line["pid"])
        if before is not None:
            # A worker that is behind by the step that was under way takes it from the others, once in each generation that
            # begins.
            began = line["generation"] - before["generation"]
            went = line["step"] - before["step"]
            require((0 if sharded and began else 1) <= went <= 1 + began,
                    f"pid {line['pid']} went from step {before['step']} to {line['step']}")
        last[line["pid"]] = line
        newest[line["pid"]] = max(line["generation"], newest.get(line["pid"], 0))
        done.setdefault(line["step"], {}).setdefault(line["generation"], []).append(line)
    for step, by_generation in sorted(done.items()):
        for generation, together in by_generation.items():
            same = len({line["digest"] for line in together}) == 1
            require(same, f"ranks have different parameters after step {step} of generation {generation}")
            if sharded or generation == max(by_generation):
                continue
            for pid in (line["pid"] for line in together):
                gone = pid in victims and newest[pid] == generation
                require(gone, f"step {step} was done again, though pid {pid} had done it in generation {generation} and lived")
        if sharded:
            check_shares(step, [line for together in by_generation.values() for line in together])
    missing = sorted(set(range(1, max(done) + 1)) - set(done))
    require(not missing, f"nobody has done steps {missing[:5]}")


def check_loss(lines, victim):
    """When the others went on, they had done all steps of the killed worker. They go on in a later generation: in the killed
    worker's own generation they may be a step behind, and write so while it dies."""
    own = [line for line in lines if line["pid"] == victim]
    after = [line for line in lines if own and line["generation"] > max(line["generation"] for line in own)]
    if not after:
        return
    done, first = max(line["step"] for line in own), min(after, key=lambda line: line["t"])
    require(first["step"] >= done, f"step {first['step']} was done after the death of a worker that had done step {done}")


def check_shares(step, lines):
    """All processes that have had a rank have the same share of the state after that step, in all generations."""
    shares = {}
    for line in lines:
        first = shares.setdefault(line["rank"], line)
        same = (line["share"], line["digest"]) == (first["share"], first["digest"])
        require(same, f"rank {line['rank']} came to another share in step {step} of generation {line['generation']} "
                      f"than of generation {first['generation']}")


class LiveTraining:
    """A job of so many nodes, all of this machine, or hosts of a cluster."""

    def __init__(self, nodes, per_node, rng, hosts=None, backend="auto", options=(), launch=(), restarts=100000):
        self.bed, self.rng = Bed(hosts), rng
        self.nodes, self.per_node, self.hosts, self.backend = nodes, per_node, hosts, backend
        self.options, self.launch = options, launch  # of the program; of ddprun
        self.restarts = () if restarts is None else ("--max_restarts", restarts)
        # A killed worker's share of the state is lost; a step that others have done may be done again with a copy from before it.
        self.sharded = "--zero_stage" in options
        self.victims = []  # (pid, moment), in order
        self.undisturbed = []  # moments of kills while all trained, with no other kill close by
        self.signal = signal.SIGKILL  # what kills them
        self.agents = []
        self.outlived = 0  # generations that one worker has seen the end of, and gone on
        self.starts = []  # what agents say of their workers' starts
        self.warm = []  # of each worker, in order: was it forked from its program that had been started ahead?

    def start(self):
        address = "n1:29400" if self.hosts else f"127.0.0.1:{free_port()}"
        for node in range(self.nodes):
            place = [] if self.hosts else ["--local_addr", "127.0.0.1", "--rdzv_conf", f"is_host={int(node == 0)}"]
            job = ["--no_python", "--nnodes", self.nodes, "--nproc_per_node", self.per_node, *self.restarts,
                   "--rdzv_backend", "c10d", "--rdzv_endpoint", address, *place, *self.launch,
                   "--event_log", self.bed.events.path]
            training = [PROBE, "live", self.bed.journal.path, "--epochs", 1000000, "--batch_size", 2, "--step_delay_ms", 10,
                        "--learning_rate", 0.001, "--lr_schedule", "constant", "--backend", self.backend, *self.options]
            self.agents.append(self.bed.run(f"node{node}", [*job, *training], host=node + 1 if self.hosts else None))

    @property
    def starts_ahead(self):
        """Whether workers are started ahead: the default for programs with surviving workers, unless an option says otherwise."""
        return "--no_in_process_restart" not in self.options and "off" not in self.launch

    @property
    def world(self):
        return self.nodes * self.per_node

    def steps(self, pid=None):
        lines = self.bed.journal.find("step")
        return lines if pid is None else [line for line in lines if line["pid"] == pid]

    def started(self):
        """The pids of the newest generation's workers by their start."""
        ended = {line["worker_pid"] for line in self.bed.events.find("worker_exit")}
        return [pid for pid in (int(line["worker_pid"]) for line in self.bed.events.find("worker_started")) if pid not in ended]

    def wait_for_steps(self, count, after=0.0):
        """Until all ranks of one generation have done so many steps after that moment."""
        def done():
            lines = [line for line in self.steps() if line["t"] > after]
            if not lines:
                return False
            newest = max(line["generation"] for line in lines)
            by_rank = {}
            for line in lines:
                if line["generation"] == newest:
                    by_rank[line["rank"]] = by_rank.get(line["rank"], 0) + 1
            return len(by_rank) == self.world and min(by_rank.values()) >= count
        self.bed.wait(done, f"{count} steps of {self.world} ranks", PATIENCE, self.agents)

    def kill(self):
        """Kills a worker with SIGKILL, at a random moment of a step, or of the recovery from the last kill."""
        if self.starts_ahead and not self.victims:  # until then its program is started ahead for the first time
            self.bed.event("warm_ready", count=self.nodes, timeout=PATIENCE, alive=self.agents)
        recovers = bool(self.victims) and self.rng.randrange(DURING_RECOVERY) == 0
        # Beside the killed worker's share one other may go, but not three at once.
        recovers = recovers and not (self.sharded and self.victims[-1][1] not in self.undisturbed)
        if recovers:
            threading.Event().wait(self.rng.uniform(0, 0.5))  # the kernel's timer decides, not the job's progress
        else:
            self.wait_for_steps(3, self.victims[-1][1] if self.victims else 0.0)
            threading.Event().wait(self.rng.uniform(0, 0.01))
        self.bed.follower.refresh()
        killed = {pid for pid, _ in self.victims}
        alive = [pid for pid in self.started() if pid not in killed]
        trained = {line["pid"] for line in self.steps()}
        holders = [pid for pid in alive if pid in trained]
        # Without the last worker that has trained, the state would be lost: only a checkpoint helps then.
        candidates = [pid for pid in alive if holders != [pid]]
        if not candidates:
            return
        pid = self.rng.choice(candidates)
        moment = time.monotonic()
        try:
            os.kill(pid, self.signal)
        except ProcessLookupError:
            return
        if recovers and self.undisturbed[-1:] == [self.victims[-1][1]]:
            self.undisturbed.pop()  # its recovery was disturbed
        self.victims.append((pid, moment))
        if not recovers:
            self.undisturbed.append(moment)

    def check(self):
        """Workers that weren't killed live, or ended with the job; none left a step out; all had the same parameters."""
        victims = {pid for pid, _ in self.victims}
        trained = {line["pid"] for line in self.steps()}
        ended = {int(line["worker_pid"]): float(line["t_seen"]) for line in self.bed.events.find("worker_exit")}
        # A worker that hasn't reported yet that it can rejoin is started anew.
        lost = set(ended) - victims
        # The kill came before the worker's end: of thousands of workers, two may have the same pid.
        lost_trained = {pid for pid in lost & trained if self.steps(pid)[0]["t"] < ended[pid]}
        require(not lost_trained, f"{len(lost_trained)} workers were started anew that nobody had killed")
        replaced = len(self.bed.events.find("worker_started")) - self.world
        require(replaced == len(victims) + len(lost), f"{replaced} workers were started anew for {len(victims)} killed ones")
        check_steps(self.steps(), victims, self.sharded)
        for pid in victims:
            check_loss(self.steps(), pid)
        self.starts = self.bed.events.find("warm_start")
        self.warm = [line.get("warm") for line in self.bed.events.find("worker_started")]
        self.outlived = max(len({line["generation"] for line in self.steps(pid)}) for pid in trained) - 1

    def stall_after(self, moment):
        """Seconds between the last step that was done before a kill, by anybody, and the first one of a later generation."""
        before = [line for line in self.steps() if line["t"] <= moment]
        if not before:
            return None
        generation = max(line["generation"] for line in before)
        after = [line["t"] for line in self.steps() if line["generation"] > generation]
        return min(after) - max(line["t"] for line in before) if after else None

    def first_steps(self):
        """Seconds from the start of each worker that took a killed one's place to its first step."""
        newcomers = self.bed.events.find("worker_started")[self.world:]
        first = {}
        for line in self.steps():
            first.setdefault(line["pid"], line["t"])
        return [first[pid] - line["t"] for line in newcomers if (pid := int(line["worker_pid"])) in first]

    def story(self):
        return "\n".join(line for line in self.bed.story().split("\n") if not re.match(r" +\S+ worker +step ", line))

    def end(self):
        """Stops the job; nothing may be left of it."""
        for agent in self.agents:
            agent.signal(signal.SIGTERM)
        for agent in self.agents:
            agent.wait(PATIENCE)

    def close(self):
        left = self.bed.stop()
        self.bed.close()
        require(not left, f"processes outlived their agents: {left}")


def run(training, kills, first=3):
    """A whole training with so many kills, from that step on. Errors: Wrong, TimelineError, with the story printed."""
    try:
        training.start()
        training.wait_for_steps(first)
        while len(training.victims) < kills:
            training.kill()
        training.wait_for_steps(3, training.victims[-1][1])
        training.bed.follower.refresh()
        training.check()
        training.end()
    except (Wrong, TimelineError, AssertionError):
        print(training.story(), flush=True)
        raise
    finally:
        training.close()
