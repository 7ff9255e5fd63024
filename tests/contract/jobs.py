"""Jobs of either launcher, torchrun or ddprun, as the contract tests start them."""

import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from bed import (CACHE, DDPRUN, PATIENCE, ROOT, SLOW, TORCH_PYTHON, Bed, free_port, has_failed,  # noqa: E402, F401
                 silent_port, torch_ahead)
from ports import private_network  # noqa: E402
from timeline import TimelineError, kill_tagged, leftovers, tagged, wait_readable  # noqa: E402, F401

PROBE = os.path.join(HERE, "probe.py")
WHOLE_RUN = os.environ.get("DDPRUN_CONTRACT") == "whole"
# What a user's shell may hold and a job would see.
_FOREIGN = re.compile(r"(OMP_NUM_THREADS|LOGLEVEL|CUDA_VISIBLE_DEVICES|USE_LIBUV|TORCH_.*|NCCL_.*|GLOO_.*|RANK|WORLD_SIZE|"
                      r"LOCAL_.*|GROUP_.*|ROLE_.*)$")


PINS = os.path.join(ROOT, "scripts", "lib", "torch_env.sh")


def _pinned(name):
    """What a variable of PINS is set to."""
    with open(PINS, encoding="utf-8") as source:
        return re.search(rf"^ddprun_{name}=(\S+)$", source.read(), re.MULTILINE).group(1)


class Launcher:
    """ddprun, or the torchrun of one version of torch."""

    def __init__(self, name, command, patience, python=TORCH_PYTHON, torch=None):
        self.name = name
        self.command = command
        self.patience = patience  # seconds that one thing may take
        self.python = python  # with torch, for its workers
        self.torch = torch  # version; None for ddprun

    @property
    def ours(self):
        return self.torch is None

    @property
    def home(self):
        """The environment that torch is installed in."""
        return os.path.dirname(os.path.dirname(self.python))

    def is_there(self):
        return os.access(self.command[0], os.X_OK)


def _torchrun(version, environment):
    programs = os.path.join(CACHE, environment, "bin")
    return Launcher(f"torchrun {version}", [os.path.join(programs, "torchrun")], 120 * SLOW,
                    os.path.join(programs, "python3"), version)


OURS = Launcher("ddprun", [DDPRUN], PATIENCE)
# The torchruns that ddprun is held against. A value in which they differ follows the newest.
PINNED = _torchrun(_pinned("torch_version"), "py-full")
NEWEST = _torchrun(_pinned("torch_newest"), f"torch-{_pinned('torch_newest')}")
TORCHRUNS = (PINNED, NEWEST)


def shell_status(returncode):
    """An exit status as a shell shows it."""
    return returncode if returncode >= 0 else 128 - returncode


class Ended:
    """What is left of one launcher process: status as a shell shows it, stdout, stderr, seconds."""

    def __init__(self, status, out, err, took):
        self.status = shell_status(status)
        self.out = out
        self.err = err
        self.took = took


class Job(Bed):
    """One job: its folder, its launchers (one for each node), the journal of its workers."""

    def __init__(self, launcher):
        super().__init__()
        self.launcher = launcher
        for name in [name for name in self.environment if _FOREIGN.match(name)]:
            del self.environment[name]
        os.mkdir(self.path("tmp"))
        self.environment.update(
            CONTRACT_JOURNAL=self.journal.path, PYTHONPATH=HERE, TMPDIR=self.path("tmp"), PYTHONDONTWRITEBYTECODE="1")
        self.private = False
        self.commands = {}  # of each launcher by its name
        self.given = dict(self.environment)  # what launchers were given

    @property
    def ours(self):
        return self.launcher.ours

    def script(self, body, name="script.py"):
        """A worker's script; `probe` is imported, and torch where the test sets PYTHON_EXEC to launcher.python."""
        return self.write(name, "import json, os, signal, sys, probe\n" + body)

    def start(self, arguments, name="node", env=None, ahead=False, **options):
        """Starts one launcher; stdout and stderr go to files. `ahead`: ddprun's workers are forked from one import of torch; for
        checks that don't depend on the start: one check of each kind starts cold."""
        words = [PROBE if word == "W" else word for word in map(str, arguments)]
        torch = torch_ahead() if ahead and self.ours and not WHOLE_RUN else ()
        command = [*(private_network() if self.private else []), *self.launcher.command, *torch, *words]
        self.commands[name] = words
        # None removes a variable.
        environment = {key: value for key, value in {**self.environment, **(env or {})}.items() if value is not None}
        self.given = environment
        with open(self.path(name + ".stdout"), "ab") as out, open(self.path(name + ".stderr"), "ab") as err:
            return self.start_process(name, command, env=environment, stdout=out, stderr=err, **options)

    def run(self, arguments, name="node", env=None, timeout=None, **options):
        """Starts one launcher and waits for its end."""
        return self.end(self.start(arguments, name, env, **options), timeout)

    def end(self, node, timeout=None):
        status = node.wait(timeout or self.launcher.patience)
        took = time.monotonic() - node.started
        self.follower.refresh()
        return Ended(status, self.text(node.name + ".stdout"), self.text(node.name + ".stderr"), took)

    def text(self, name):
        """A file of the job's folder, '' without one; undecodable bytes are replaced, '\\r' stays."""
        if not os.path.exists(self.path(name)):
            return ""
        with open(self.path(name), encoding="utf-8", errors="replace", newline="") as source:
            return source.read()

    def told(self, **fields):
        """What workers wrote down so far, in rank order."""
        self.follower.refresh()
        return sorted(self.journal.find("worker", **fields), key=lambda line: (line["attempt"], line["rank"]))

    def await_workers(self, count, after=0.0, alive=(), timeout=None, **fields):
        """Waits until `count` workers with these fields began after `after`; in rank order."""
        def there():
            lines = self.journal.find("worker", after, **fields)
            return lines if len(lines) >= count else None
        lines = self.wait(there, f"{count} workers {fields or ''}", timeout or self.launcher.patience, alive)
        return sorted(lines, key=lambda line: line["rank"])

    def say_of(self, node, pattern, alive=(), timeout=None):
        """Waits until the stderr of a node has the pattern; returns that text."""
        path = node.name + ".stderr"
        self.watch(self.path(path))
        return self.wait(lambda: re.search(pattern, self.text(path)) and self.text(path), f"{pattern!r} in {path}",
                         timeout or self.launcher.patience, alive)

    def watch(self, path):
        """Makes waiting wake for changes of this file too."""
        self.follower.watch(path)

    def files(self, folder):
        """{path below `folder`: content} of all regular files."""
        found = {}
        for base, _, names in os.walk(self.path(folder)):
            for name in names:
                path = os.path.join(base, name)
                if os.path.isfile(path):
                    found[os.path.relpath(path, self.path(folder))] = self.text(path)
        return found

    def c10d(self, nnodes, port, **conf):
        """The options of a node of a c10d job on loopback."""
        words = ["--nnodes", nnodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
        if conf:
            words += ["--rdzv-conf", ",".join(f"{key}={value}" for key, value in conf.items())]
        return words

    def stop(self):
        """Ends everything. Returns what outlived ddprun and should not have."""
        if self.ours:
            return super().stop()
        kill_tagged(self.tag)
        return {}

    def story(self):
        parts = [super().story()]
        for agent in self.agents:
            for stream in ("stdout", "stderr"):
                parts.append(f"---- {self.launcher.name} {agent.name} {stream}\n" + self.text(f"{agent.name}.{stream}")[-6000:])
        return "\n".join(parts)
