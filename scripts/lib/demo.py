#!/usr/bin/env python3
"""The demo: two "nodes" on this machine train a real model through a worker's and a node's death.

Prints what happens as a timeline, made from the agents' event log and the training program's journal.
Exit status 1 when a step of the story doesn't happen, the model is worse than 97 %, or a process is left.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid

from timeline import TAG_VARIABLE, Follower, Process, TimelineError, kill_tagged, leftovers, tagged

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DDPRUN = os.path.join(ROOT, "build", "release", "bin", "ddprun")
DIGITS = os.path.join(ROOT, "build", "release", "bin", "digits")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
ACCURACY_LEAST = 97.0
# Nothing of the story takes longer than this, even on a busy machine.
NODE_VARIABLE = "DDPRUN_DEMO_NODE"  # in the environment of all processes of a node: its letter
PATIENCE = 40.0
# Epochs of training: enough that the whole story happens before the end, and that the model is good.
EPOCHS = {"full": 32, "short": 24}
# Steps that training runs on undisturbed before the next thing happens.
STEPS_BETWEEN = {"full": 60, "short": 15}
# A restart repeats at most this many steps.
CHECKPOINT_EVERY = 10


class Story:
    """One run of the demo: its agents and their names, and the lines printed so far."""

    def __init__(self, form, quiet):
        self.form = form
        self.quiet = quiet
        self.tag = uuid.uuid4().hex
        self.folder = tempfile.mkdtemp(prefix="ddprun-demo-")
        self.follower = Follower()
        self.events = self.follower.follow(os.path.join(self.folder, "events.jsonl"))
        self.journal = self.follower.follow(os.path.join(self.folder, "journal.jsonl"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.started = time.monotonic()
        self.agents = []
        self.names = {}  # agent's pid: "node a"
        self.nodes = {}  # node id: "node a"
        self.told = 0
        self.figures = {}

    # ---------------------------------------------------------------- printing

    def say(self, text, at=None):
        if not self.quiet:
            print(f"  {(at or time.monotonic()) - self.started:7.3f}s  {text}", flush=True)

    def tell_events(self):
        """Prints the event lines that came since the last call."""
        for line in self.events.lines[self.told:]:
            text = self.sentence(line)
            if text:
                self.say(text, line["t"])
        self.told = len(self.events.lines)

    def sentence(self, line):
        event = line["event"]
        name = self.names.get(line["pid"], line.get("who", "?"))
        if event == "node_joined":
            self.nodes[line["node"]] = self.names.get(int(line["agent_pid"]), line["node"])
        node = self.nodes.get(line.get("node"), line.get("node"))
        if event == "node_joined":
            return f"{node} joined (pid {line['agent_pid']})"
        if event == "node_lost":
            return f"{node} is lost: {line['why']}"
        if event == "generation":
            return f"generation {line['generation']}: {line['world']} ranks on {line['nodes']} node(s); {line['reason']}"
        if event == "assignment":
            return f"    {name}: rank {line['rank']} of {line['world']}, restart count {line['restart_count']}"
        if event == "worker_kept":
            return f"    {name}: its worker goes on in its process (pid {line['worker_pid']})"
        if event == "verdict" and line["who"] == "service":
            return f"verdict: {line['outcome']}; {line['reason']}"
        return None

    # ---------------------------------------------------------------- acting

    def start_agent(self, letter, hosts):
        command = [
            DDPRUN, "--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_id",
            "demo", "--rdzv_conf", f"is_host={hosts}", "--nproc_per_node", "1", "--max_restarts", "3", "--event_log",
            self.events.path, "--no_python", DIGITS, "--epochs", str(EPOCHS[self.form]), "--checkpoint_dir",
            os.path.join(self.folder, "checkpoints"), "--checkpoint_every", str(CHECKPOINT_EVERY), "--journal",
            self.journal.path,
        ]
        environment = {"DDPRUN_DIGITS": os.path.join(CACHE, "digits", "digits.csv.gz"), **os.environ, TAG_VARIABLE: self.tag,
                       NODE_VARIABLE: letter}
        agent = Process(f"node {letter}", command, os.path.join(self.folder, f"node_{letter}.out"), environment)
        self.agents.append(agent)
        self.names[agent.pid] = agent.name
        self.say(f"{agent.name} is started (pid {agent.pid})")
        return agent

    def kill(self, pid, what):
        self.say(f"FAULT: {what} is killed with SIGKILL (pid {pid})")
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    # ---------------------------------------------------------------- waiting

    def wait(self, condition, what, alive):
        def asked():
            self.tell_events()
            return condition()
        return self.follower.wait(asked, what, PATIENCE, alive)

    def training(self, world, after, steps, alive):
        """The step line of rank 0 when `steps` steps of a generation after `after` with `world` ranks are done."""
        def enough():
            lines = [line for line in self.journal.lines if "step" in line and line.get("rank") == 0 and
                     line.get("world") == world and line["generation"] > after]
            newest = [line for line in lines if line["generation"] == lines[-1]["generation"]] if lines else []
            return newest if len(newest) >= steps else None
        return self.wait(enough, f"{steps} training steps with {world} ranks", alive)

    def noticed(self, event, after, alive, **fields):
        line = self.wait(lambda: self.events.find(event, after, **fields), f"event {event}", alive)[0]
        return float(line.get("t_seen", line["t"]))

    def resumed(self, fault, key, world, after, alive):
        """Prints when the first step after a fault was made; returns its generation."""
        first = self.training(world, after, 1, alive)[0]
        milliseconds = (first["t"] - fault) * 1000
        self.figures[key] = milliseconds
        self.say(f"training goes on: step {first['step']} with {world} rank{'s' if world > 1 else ''}, {milliseconds:.0f} ms "
                 "after the fault", first["t"])
        self.training(world, after, STEPS_BETWEEN[self.form], alive)
        return first["generation"]


def worker_pid(story, rank):
    """The training process with this rank, found by its environment."""
    for pid in tagged(story.tag):
        try:
            with open(f"/proc/{pid}/environ", "rb") as source:
                environment = source.read().split(b"\0")
            if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(DIGITS) and f"RANK={rank}".encode() in environment:
                return pid
        except OSError:
            continue
    raise TimelineError(f"there is no worker of rank {rank}")


def play(story):
    """The story, step by step; returns the final accuracy in percent."""
    node_a = story.start_agent("a", hosts=1)
    # Joined first, it has rank 0 and keeps it.
    story.wait(lambda: story.events.find("node_joined"), "node a joins", [node_a])
    node_b = story.start_agent("b", hosts=0)
    both = [node_a, node_b]
    lines = story.training(2, 0, STEPS_BETWEEN[story.form], both)
    generation = lines[0]["generation"]
    story.say(f"training runs on 2 nodes: step {lines[-1]['step']}, loss {lines[-1]['loss']:.3f}", lines[-1]["t"])

    victim = worker_pid(story, 1)
    fault = story.kill(victim, "the worker with rank 1")
    seen = story.noticed("worker_exit", fault, both, worker_pid=victim)
    story.figures["worker noticed"] = (seen - fault) * 1000
    story.say(f"noticed after {(seen - fault) * 1000:.1f} ms", seen)
    generation = story.resumed(fault, "worker resumed", 2, generation, both)

    fault = story.kill(node_b.pid, "node b, agent and all,")
    seen = story.noticed("node_lost", fault, [node_a])
    story.figures["node noticed"] = (seen - fault) * 1000
    story.say(f"noticed after {(seen - fault) * 1000:.1f} ms", seen)
    generation = story.resumed(fault, "node resumed", 1, generation, [node_a])
    left = [pid for pid in leftovers(story.tag, 0) if is_of_b(pid)]
    if left:
        raise TimelineError(f"workers of the dead node live on: {left}")

    back = time.monotonic()
    node_b = story.start_agent("b", hosts=0)
    story.resumed(back, "node back", 2, generation, [node_a, node_b])
    return finish(story, node_a, node_b)


def is_of_b(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            return f"{NODE_VARIABLE}=b".encode() in source.read().split(b"\0")
    except OSError:
        return False


def finish(story, node_a, node_b):
    for node in (node_a, node_b):
        status = node.wait(PATIENCE)
        if status != 0:
            raise TimelineError(f"{node.name} ended with status {status}")
    story.follower.refresh()
    story.tell_events()
    found = re.findall(r"accuracy[^0-9\n]*([0-9.]+) ?%", node_a.text() + node_b.text())
    if not found:
        raise TimelineError("the training program printed no accuracy")
    return float(found[-1])


def run_once(form, quiet=False):
    """(accuracy or None, figures, seconds, problem or '')."""
    story = Story(form, quiet)
    accuracy, problem = None, ""
    try:
        accuracy = play(story)
        if accuracy < ACCURACY_LEAST:
            problem = f"the model's accuracy is {accuracy:.1f} %, below {ACCURACY_LEAST:g} %"
    except (TimelineError, OSError) as error:
        problem = str(error)
        story.follower.refresh()
        story.tell_events()
    seconds = time.monotonic() - story.started
    left = {}
    if not problem:
        left = leftovers(story.tag, 2)
        if left:
            problem = f"processes were left behind: {left}"
    kill_tagged(story.tag)
    for agent in story.agents:
        agent.close()
    if problem:
        explain(story, problem)
    else:
        story.say("nothing is left behind: all processes of the job have ended")
        shutil.rmtree(story.folder, ignore_errors=True)
    story.follower.close()
    return accuracy, story.figures, seconds, problem


def explain(story, problem):
    print(f"\nerror: the demo's story did not happen: {problem}", file=sys.stderr)
    for agent in story.agents:
        tail = agent.text().splitlines()[-15:]
        print(f"---- last lines of {agent.name} (pid {agent.pid}, status {agent.returncode}):", *tail, sep="\n", file=sys.stderr)
    print(f"---- all outputs, the event log and the journal are kept in {story.folder}", file=sys.stderr)


def repeat(count):
    """Runs the short form `count` times; a table of figures and one line of summary."""
    keys = ["worker noticed", "worker resumed", "node noticed", "node resumed", "node back"]
    print("All times in ms after the fault (or after node b's new start).\n")
    print(f"{'run':>5}{'accuracy':>10}" + "".join(f"{key:>16}" for key in keys) + f"{'seconds':>9}", flush=True)
    failed, accuracies = 0, []
    for number in range(1, count + 1):
        accuracy, figures, seconds, problem = run_once("short", quiet=True)
        failed += bool(problem)
        if accuracy is not None:
            accuracies.append(accuracy)
        print(f"{number:>5}{accuracy or 0:>8.1f} %" + "".join(f"{figures.get(key, float('nan')):>16.1f}" for key in keys) +
              f"{seconds:>9.1f}{'  FAILED' if problem else ''}", flush=True)
    band = f"{min(accuracies):.1f} to {max(accuracies):.1f} %" if accuracies else "none"
    print(f"\n{count - failed} of {count} runs finished with nothing left behind; accuracy {band}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the same story with less training")
    parser.add_argument("--repeat", type=int, metavar="N", help="the short form N times, as a table")
    arguments = parser.parse_args()
    for program in (DDPRUN, DIGITS):
        if not os.access(program, os.X_OK):
            sys.exit(f"error: {program} is not built yet: run scripts/demo, which builds it")
    if arguments.repeat:
        return repeat(arguments.repeat)
    print("Two nodes train a classifier of handwritten digits. A worker dies, a node dies, the node comes back.\n")
    accuracy, _, seconds, problem = run_once("short" if arguments.short else "full")
    if problem:
        return 1
    print(f"\nThe story took {seconds:.1f} s.")
    print(f"Final accuracy on held-out digits: {accuracy:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
