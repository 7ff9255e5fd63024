"""The fixture of tests with whole programs: agents, their event log, the workers' journal.

No sleeps: everything waits for a line of the event log or journal, or for a process's end.
"""

import contextlib
import fcntl
import functools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest
import uuid

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))

from ports import free_port, silent_port  # noqa: E402, F401
from timeline import (  # noqa: E402
    TAG_VARIABLE, Follower, Process, TimelineError, kill_tagged, leftovers, wait_readable)

DDPRUN = os.environ.get("DDPRUN_BIN", os.path.join(ROOT, "build", "dev", "bin", "ddprun"))
# How much slower programs are under sanitizers.
SLOWNESS = float(os.environ.get("DDPRUN_TEST_SLOWNESS", "1"))
# AddressSanitizer keeps freed memory, in MB (quarantine_size_mb's default). Bounds on memory are larger by it: it is no leak.
FREED_MB = 256 if SLOWNESS > 1 else 0
# Tests run side by side, on machines that have other work too: bounds on time are multiplied by this. They only
# distinguish "at once" from "when a time-out is over"; the benchmarks measure how fast ddprun is.
SLOW = 4 * SLOWNESS
WORKER = os.path.join(ROOT, "tests", "support", "worker.py")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
# Python with torch 2.11, which scripts/setup installs.
TORCH_PYTHON = os.path.join(CACHE, "py-full", "bin", "python3")
# The same torch with accelerate and Lightning, and with transformers as well, which only scripts/test --all installs.
LAUNCHERS = os.path.join(CACHE, "py-launchers", "bin", "python3")
FRAMEWORKS = os.path.join(CACHE, "py-frameworks", "bin", "python3")
# No test of ours may wait longer than this for one thing.
PATIENCE = 20 * SLOW
# scripts/test --all: also tests that repeat a check with other options.
WHOLE = os.environ.get("DDPRUN_TEST_WHOLE") == "1"
WHOLE_ONLY = unittest.skipUnless(WHOLE, "scripts/test --all has these")


def torch_is_there():
    return os.access(TORCH_PYTHON, os.X_OK)


def main_with_torch():
    """unittest.main(), where there is torch."""
    if torch_is_there():
        unittest.main(verbosity=2)
    print("no torch: run scripts/setup")


def remembered(method):
    """A method of test cases that runs a program, once for the same program and arguments."""
    known = {}

    @functools.wraps(method)
    def call(case, *arguments, **named):
        key = repr((getattr(case, "PROGRAM", None), arguments, sorted(named.items())))
        if key not in known:
            known[key] = method(case, *arguments, **named)
        return known[key]
    return call


def torch_ahead(*modules):
    """Options of a job that imports torch, and these modules, once a node, and forks all its workers from there
    (docs/WARM.md): for tests that don't depend on how workers start, because an import takes two seconds of a processor. With
    --all, and with other versions of torch, each worker is started by itself."""
    if WHOLE or os.environ.get("DDPRUN_TEST_PYTHON"):
        return []
    return ["--warm", "on", "--warm_memory", "50%", "--preload", ",".join(["torch", "torch.distributed", *modules])]


def read_until(stream, pattern, timeout):
    """Reads a pipe up to the end of the first match of `pattern` (bytes), or to its own end. Returns what came.

    Errors: TimelineError after `timeout` seconds, with what came.
    """
    deadline = time.monotonic() + timeout
    text = b""
    while not re.search(pattern, text):
        if not wait_readable(stream.fileno(), deadline - time.monotonic()):
            raise TimelineError(f"no {pattern!r} within {timeout:g} s in {text!r}")
        chunk = os.read(stream.fileno(), 1 << 16)
        if not chunk:
            break
        text += chunk
    return text


def set_pipe_size(pipe, size):
    """Makes writers wait as soon as so many bytes, a page or more, haven't been read."""
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


class Bed:
    """One job of a test: its folder, its processes, its timeline."""

    def __init__(self, cluster=None):
        self.cluster = cluster
        self.tag = uuid.uuid4().hex
        self.folder = tempfile.mkdtemp(prefix="ddprun-test-")
        self.follower = Follower()
        self.events = self.follower.follow(os.path.join(self.folder, "events.jsonl"))
        self.journal = self.follower.follow(os.path.join(self.folder, "journal.jsonl"))
        self.agents = []
        # Without variables that would change the launcher, or make Python's workers write unbuffered: a line would be several
        # writes, and those of workers that share a file would mix.
        self.environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith(("PET_", "TORCHELASTIC_", "DDPRUN_", "SLURM_", "MASTER_", "KUBERNETES_", "JOB_", "JOBSET_"))
        }
        self.environment[TAG_VARIABLE] = self.tag
        # A folder without a daemon: a developer's own daemon would fork the workers of tests.
        self.environment["DDPRUN_DAEMON_DIR"] = os.path.join(self.folder, "no-daemon")
        self.environment["PYTHON_EXEC"] = sys.executable
        # The memory of --warm and doctor about scripts is this job's alone, not that of the user who runs the tests.
        self.environment["XDG_CACHE_HOME"] = self.path("cache")
        self.environment["XDG_STATE_HOME"] = self.path("state")
        if os.environ.get("DDPRUN_TEST_WARM") == "on":
            # The module is imported ahead, so that there is an interpreter to fork from.
            self.environment.update(PET_WARM="on", PET_PRELOAD="decimal")

    def forget_warm(self):
        """Takes back what DDPRUN_TEST_WARM set, for tests that say by themselves how workers start."""
        for name in ("PET_WARM", "PET_PRELOAD"):
            self.environment.pop(name, None)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as sink:
            sink.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def run(self, name, arguments, host=None, env=None, program=DDPRUN, **options):
        """Starts `ddprun arguments…`; stdout and stderr go to one file unless options say otherwise."""
        command = [program, *map(str, arguments)]
        if host is not None:
            command = self.cluster.command(host, command)
        output = None if "stdout" in options else self.path(f"{name}.out")
        return self.start_process(name, command, output=output, env={**self.environment, **(env or {})}, **options)

    @contextlib.contextmanager
    def as_another_user(self):
        """Agents that are started within have their sockets where commands outside don't look: those ask over TCP."""
        before = self.environment
        os.makedirs(self.path("theirs"), exist_ok=True)
        self.environment = {**before, "TMPDIR": self.path("theirs"), "XDG_RUNTIME_DIR": self.path("theirs")}
        yield
        self.environment = before

    def start_process(self, name, command, **options):
        agent = Process(name, command, cwd=self.folder, **options)
        self.agents.append(agent)
        if options.get("output") is not None:
            self.follower.watch(options["output"])
        return agent

    def agent(self, name, options, worker=("wait",), host=None, env=None, **process):
        """An agent of a job of worker.py workers."""
        return self.run(name, [*options, "--event_log", self.events.path, WORKER, self.journal.path, *worker], host, env,
                        **process)

    # ---------------------------------------------------------------- waiting

    def wait(self, condition, what, timeout=None, alive=()):
        return self.follower.wait(condition, what, timeout or PATIENCE, alive)

    def event(self, name, after=0.0, count=1, timeout=None, alive=(), **fields):
        """The `count`-th line with this event name and these fields, after `after`."""
        what = f"event {name} {fields or ''}"
        return self.wait(lambda: self.events.find(name, after, **fields)[count - 1:], what, timeout, alive)[0]

    def workers(self, generation, count, timeout=None, alive=()):
        """The journal lines of a generation's workers by rank, once there are `count`."""
        def all_there():
            lines = self.journal.find("worker", generation=generation)
            return lines if len(lines) >= count else None
        lines = self.wait(all_there, f"{count} workers of generation {generation}", timeout, alive)
        return sorted(lines, key=lambda line: line["rank"])

    def next_workers(self, after, count, world, timeout=None, alive=()):
        """The workers of the first generation newer than `after` that has `world` ranks."""
        def complete():
            by_generation = {}
            for line in self.journal.find("worker", world=world):
                if line["generation"] > after:
                    by_generation.setdefault(line["generation"], []).append(line)
            return next((lines for lines in by_generation.values() if len(lines) >= count), None)
        lines = self.wait(complete, f"{count} workers of a generation after {after} with world size {world}", timeout, alive)
        return sorted(lines, key=lambda line: line["rank"])

    # ---------------------------------------------------------------- acting

    @staticmethod
    def signal_workers(lines, number):
        for line in lines:
            try:
                os.kill(line["pid"], number)
            except ProcessLookupError:
                pass

    def kill_alone(self, rank):
        """Kills a worker. Its peers, which end when they miss it, are stopped until its agent has seen its end: on a busy machine
        a peer's end may be reported first (R12 goes by arrival there)."""
        generation = max(line["generation"] for line in self.journal.find("worker"))
        lines = self.journal.find("worker", generation=generation)
        killed = [line for line in lines if line["rank"] == rank]
        peers = [line for line in lines if line["rank"] != rank]
        self.signal_workers(peers, signal.SIGSTOP)
        self.signal_workers(killed, signal.SIGKILL)
        try:
            pids = {line["pid"] for line in killed}
            self.wait(lambda: {line["worker_pid"] for line in self.events.find("worker_exit")} >= pids, "the killed one's end")
        finally:
            self.signal_workers(peers, signal.SIGCONT)

    def finish(self, lines):
        """Lets the workers end well."""
        self.signal_workers(lines, signal.SIGUSR1)

    # ---------------------------------------------------------------- ending

    def stop(self):
        """Ends everything; returns what outlived the agents although it should not have."""
        running = [agent for agent in self.agents if not agent.ended()]
        for agent in running:
            agent.signal(signal.SIGTERM)
            agent.signal(signal.SIGCONT)
        for agent in running:
            try:
                agent.wait(PATIENCE)
            except TimelineError:
                pass
        left = leftovers(self.tag, 2 * SLOW)
        kill_tagged(self.tag)
        return left

    def close(self):
        for agent in self.agents:
            agent.close()
        self.follower.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def story(self):
        """The timeline and every agent's output, for a failed test."""
        self.follower.refresh()
        lines = sorted(self.events.lines + self.journal.lines, key=lambda line: line.get("t", 0))
        start = lines[0]["t"] if lines else 0
        text = []
        for line in lines:
            fields = " ".join(f"{k}={v}" for k, v in line.items()
                              if k not in ("t", "wall", "who", "event", "environment"))
            origin = line.get("who", "")
            text.append(f"  {line['t'] - start:9.4f}s {origin:<22} {line['event']:<16} {fields}")
        for agent in self.agents:
            text.append(f"---- {agent.name}: pid {agent.pid}, status {agent.returncode}")
            text.append(agent.text().rstrip())
        return "\n".join(text)


def has_failed(test):
    """Whether this test has failed, asked while it is still cleaning up."""
    result = test._outcome.result  # pylint: disable=protected-access
    return any(failed is test for failed, _ in result.failures + result.errors)


class BedTestCase(unittest.TestCase):
    """A test with a Bed: prints the story when it fails, and fails when something is left behind."""

    cluster = None

    def setUp(self):
        self.bed = Bed(self.cluster)
        self.addCleanup(self._end)

    def _end(self):
        left = self.bed.stop()
        if left or has_failed(self):
            print(f"\n{self.id()}:\n{self.bed.story()}", flush=True)
        self.bed.close()
        self.assertEqual({}, left, "processes outlived their agents")

    def assert_status(self, expected, agent, timeout=None):
        self.assertEqual(expected, agent.wait(timeout or PATIENCE), f"exit status of {agent.name}: {agent.text()[-600:]}")
