"""A training that loses its rendezvous service, or the service's machine, at some moment: what was wrong with it afterwards.

Each trial is a job of its own; its workers save every step. Used by the benchmarks, which repeat them, and by the tests.
"""

import os
import re
import signal
import threading
import time

from bed import ROOT, SLOW, Bed, TimelineError, free_port

WORKER = os.path.join(ROOT, "tests", "support", "saving_worker.py")
PORT = 29400
PATIENCE = 40 * SLOW
# A service that its agent has started again listens; then all agents are back within this.
BACK_WITHIN = 0.3
# An agent is started in place of the service's agent, after its machine was lost; then the job has its next generation within
# this.
REPLACED_WITHIN = 1.0
# The same with etcd and without another agent, from the loss on, beyond the time that etcd has granted the service's lease.
ELECTED_WITHIN = 0.8


class Wrong(Exception):
    """What a trial has shown that mustn't be."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


def let_pass(seconds):
    """The kernel's timer decides the moment of a fault, not the job's progress."""
    threading.Event().wait(seconds)


class Training:
    """A job in which every worker writes its steps down, and rank 0 saves them."""

    def __init__(self, nodes, steps, step_ms, hosts=None):
        self.bed, self.hosts = Bed(hosts), hosts
        self.count, self.steps, self.step_ms = nodes, steps, step_ms
        self.run_id = f"train{self.bed.tag}"
        self.agents = []
        os.mkfifo(self.bed.path("hold"))
        self.go_on = None  # its writer

    def start(self, name, *options, host=None):
        agent = self.bed.run(name, [*options, "--nproc_per_node", 1, "--rdzv_id", self.run_id, "--event_log",
                                    self.bed.events.path, WORKER, self.bed.journal.path, self.bed.folder, self.step_ms,
                                    self.steps], host=host)
        self.agents.append(agent)
        return agent

    def struck(self):
        """The fault has come: the training may end."""
        self.go_on = open(self.bed.path("hold"), "r+b", buffering=0)  # never waits for a reader

    def wait_for_step(self, step):
        self.bed.wait(lambda: self.bed.journal.find("step", step=step, rank=0), f"step {step}", PATIENCE, self.agents)

    def steps_of(self):
        """What each process of a worker has done: {generation: {rank: (its first step, all its steps)}}."""
        self.bed.follower.refresh()
        generations, by_pid = {}, {}
        for line in self.bed.journal.find("worker"):
            taken = by_pid[line["pid"]] = []
            generation = int(line["environment"]["DDPRUN_GENERATION"])
            generations.setdefault(generation, {})[line["rank"]] = (line["first"], taken)
        for line in self.bed.journal.find("step"):
            by_pid[line["pid"]].append(line["step"])
        return generations

    def generations_begun(self):
        """A service that is killed has recorded a generation, perhaps, and not said so yet; then its successor does."""
        begun = {int(line["generation"]) for line in self.bed.events.find("generation")}
        return begun | {int(line["generation"]) for line in self.bed.events.find("recovering")} - {0}

    def check_end(self, generations, restarts):
        """All agents have ended well, after so many generations; each went on from the last save of the one before."""
        for agent in self.agents:
            status = agent.wait(PATIENCE)
            require(status == 0, f"{agent.name} ended with {status}")
        history = self.steps_of()
        begun = self.generations_begun()
        require(begun == set(range(1, generations + 1)), f"generations {sorted(begun)} were begun, not {generations}")
        charged = max(int(line["restart_count"]) for line in self.bed.events.find("assignment"))
        require(charged == restarts, f"{charged} restarts were charged, not {restarts}")
        self.check_steps(history)

    def check_steps(self, history):
        for generation, ranks in sorted(history.items()):
            for rank, (first, taken) in ranks.items():
                require(taken == list(range(first, first + len(taken))), f"rank {rank} of generation {generation} left steps out")
            if 0 not in ranks:
                continue  # it was killed before it had begun
            saved = self.saved_before(min(line["t"] for line in self.bed.journal.find("worker", rank=0)
                                          if int(line["environment"]["DDPRUN_GENERATION"]) == generation))
            # A killed worker may have saved a step without writing that down.
            first = ranks[0][0]
            require(first in (saved, saved + 1), f"generation {generation} began with step {first}; {saved} steps were saved")
        last = [taken[-1:] for _, taken in history[max(history)].values()]
        require(all(each == [self.steps - 1] for each in last), f"the ranks' last steps were {last}, not {self.steps - 1}")

    def saved_before(self, moment):
        return max((line["step"] for line in self.bed.journal.find("saved") if line["t"] < moment), default=0)

    def story(self):
        """The fixture's story, without every single step."""
        return "\n".join(line for line in self.bed.story().split("\n") if not re.match(r" +\S+ worker +(step|saved) ", line))

    def close(self):
        left = self.bed.stop()
        if self.go_on:
            self.go_on.close()
        self.bed.close()
        if self.hosts:
            self.hosts.heal()
        if left:
            raise Wrong(f"processes outlived their agents: {left}")


class ServiceKill(Training):
    """kill -9 for the service, and for a worker, at any moment of three nodes' training."""

    def __init__(self, rng, steps=150, step_ms=10):
        super().__init__(3, steps, step_ms)
        life = steps * step_ms / 1000  # the job's is longer by its start
        self.faults = sorted([(rng.uniform(0, life), self.kill_service), (rng.uniform(0, life), self.kill_worker)],
                             key=lambda fault: fault[0])
        self.killed = None

    def describe(self):
        return ", ".join(f"{fault.__name__.removeprefix('kill_')} after {moment:.2f} s" for moment, fault in self.faults)

    def kill_service(self):
        service = self.bed.event("service_started", alive=self.agents)["service_pid"]
        self.killed = time.monotonic()
        os.kill(service, signal.SIGKILL)

    def kill_worker(self):
        workers = self.bed.wait(lambda: self.bed.journal.find("worker"), "a worker", PATIENCE)
        self.bed.signal_workers(workers[-1:], signal.SIGKILL)

    def run(self):
        """The seconds after which all agents were back."""
        port, began = free_port(), time.monotonic()
        for node in range(self.count):
            self.start(f"node{node}", "--nnodes", self.count, "--max_restarts", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint",
                       f"127.0.0.1:{port}", "--rdzv_conf", f"is_host={int(node == 0)}", "--local_addr", "127.0.0.1")
        for moment, fault in self.faults:
            let_pass(began + moment - time.monotonic())
            fault()
        self.struck()
        listening = self.bed.event("service_listening", after=self.killed, alive=self.agents)["t"]
        back = max(self.back_of(agent) for agent in self.agents) - listening
        self.check_end(generations=2, restarts=1)
        require(not self.bed.events.find("node_lost"), "a node was lost")
        return back

    def back_of(self, agent):
        """When the new service had welcomed this agent."""
        name = self.bed.wait(lambda: [line["node"] for line in self.bed.events.find("agent_start") if line["pid"] == agent.pid],
                             "the agent's start", PATIENCE)[0]

        def welcomed():
            lines = self.bed.events.find("reconnected", after=self.killed, who=f"agent:{name}")
            return lines or self.bed.events.find("node_joined", after=self.killed, node=name)
        return self.bed.wait(welcomed, f"{name} to be back", PATIENCE)[0]["t"]


class HostLost(Training):
    """The machine of the service loses its power, and another agent is started at its address, with the same --state_dir."""

    HOST, OTHER = 1, 4

    def __init__(self, hosts, rng, other_machine, absence=None, steps=80, step_ms=20):
        """`other_machine`: another one, which has got the address; else it is the same, started again."""
        super().__init__(3, steps, step_ms, hosts)
        self.other_machine = other_machine
        self.step, self.absence = rng.randrange(1, steps // 2), rng.uniform(1.5, 4) if absence is None else absence

    def describe(self):
        return (f"step {self.step}, {self.absence:.1f} s without it, then "
                f"{'another machine' if self.other_machine else 'the same one'}")

    def start_on(self, host, name):
        return self.start(name, "--nnodes", self.count, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n{self.HOST}:{PORT}",
                          "--state_dir", self.bed.path("state"), host=host)

    def run(self):
        """The seconds from the start of the new agent to the next generation."""
        for host in range(1, self.count + 1):
            self.start_on(host, f"agent{host}")
        self.wait_for_step(self.step)
        self.hosts.power_off(self.HOST)
        self.agents.pop(0).wait(PATIENCE)
        self.struck()
        if self.other_machine:
            self.hosts.move_address(self.HOST, self.OTHER)
        let_pass(self.absence / 2)
        if not self.other_machine:
            self.hosts.power_on(self.HOST)
        let_pass(self.absence / 2)  # a machine has its network before it starts an agent
        replacement = self.start_on(self.OTHER if self.other_machine else self.HOST, "replacement")
        formed = self.bed.event("generation", generation=2, timeout=PATIENCE, alive=self.agents)
        self.check_end(generations=2, restarts=0)
        return formed["t"] - replacement.started


class EtcdNodeLost(Training):
    """The machine loses its power on which the service is, and a member of etcd; nobody takes its place."""

    def __init__(self, hosts, etcd, rng, with_leader, steps=140, step_ms=60):
        """`etcd`: a member on each of the hosts 1 to 3. `with_leader`: etcd's leader is the one that is lost."""
        super().__init__(3, steps, step_ms, hosts)
        self.etcd, self.with_leader = etcd, with_leader
        self.moment = rng.uniform(0, 1)  # what is left lasts longer than two leases
        self.granted = None

    def describe(self):
        return f"{self.moment:.2f} s after a renewal, {'with' if self.with_leader else 'without'} etcd's leader"

    def bound(self):
        return self.granted * (2 if self.with_leader else 1) + ELECTED_WITHIN

    def run(self):
        """The seconds from the loss to the next generation."""
        on = {self.start(f"agent{host}", "--nnodes", f"2:{self.count}", "--rdzv_backend", "etcd", "--rdzv_endpoint",
                         self.etcd.endpoints, "--rdzv_conf", "last_call_timeout=0.1", host=host).pid: host
              for host in range(1, self.count + 1)}
        serving = on[self.bed.event("service_started", alive=self.agents)["pid"]]
        self.bed.wait(lambda: self.bed.journal.find("worker", world=self.count), "all workers", PATIENCE, self.agents)
        self.granted = self.etcd.granted(f"/ddprun/{self.run_id}/leader")
        self.etcd.lead(serving - 1 if self.with_leader else serving % self.count)
        self.wait_for_step(1)
        let_pass(self.moment)
        before = len(self.bed.events.find("generation"))
        lost = time.monotonic()
        self.hosts.power_off(serving)
        self.agents.pop(serving - 1).wait(PATIENCE)
        self.struck()
        formed = self.bed.event("generation", after=lost, timeout=PATIENCE, alive=self.agents)
        self.check_end(generations=before + 1, restarts=0)
        return formed["t"] - lost

    def close(self):
        super().close()  # heals the hosts
        for index, process in enumerate(self.etcd.processes):
            if process.poll() is not None:
                self.etcd.start(index)
        self.etcd.wait(self.etcd.is_whole, "etcd to be whole")


def check(test, trial, bound_of):
    """One trial as a test, which may be slow as other tests may."""
    try:
        seconds = trial.run()
        test.assertLess(seconds, SLOW * bound_of(trial), trial.describe())
    except (Wrong, TimelineError, AssertionError) as error:
        print(trial.story(), flush=True)
        raise AssertionError(f"{trial.describe()}: {error}") from error
    finally:
        trial.close()


def run_trials(trials, count, bound_of, what):
    """Runs each, and prints what it came to. Returns an exit status: 1 when one was not good."""
    good, worst = 0, 0.0
    for number, trial in enumerate(trials):
        wrong = ""
        try:
            seconds = trial.run()
            bound = bound_of(trial)
            worst = max(worst, seconds / bound)
            line = f"{what} after {1000 * seconds:.0f} of {1000 * bound:.0f} ms"
            if seconds > bound:
                wrong = "too late"
        except (Wrong, TimelineError) as error:
            line = wrong = str(error)
        print(f"trial {number}: {trial.describe()}: {line}{'   MISSED' if wrong else ''}", flush=True)
        if wrong:
            print(trial.story(), flush=True)
        try:
            trial.close()
        except Wrong as error:
            wrong = str(error)
            print(f"trial {number}: {wrong}   MISSED", flush=True)
        good += not wrong
    print(f"{good} of {count} good; the latest took {100 * worst:.0f} % of its bound", flush=True)
    return 0 if good == count else 1
