"""A test that follows a page: its files are written, its commands run in order, in the situation that the page speaks of.

Hosts are host0, host1 … (tests/support/cluster.py), so that commands run as they stand on the page: names, ports and addresses.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import cluster  # noqa: E402
import pages  # noqa: E402
from bed import DDPRUN, PATIENCE, ROOT, BedTestCase  # noqa: E402
from elsewhere import ELSEWHERE, UNRUN  # noqa: E402
from timeline import ends_within  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.dirname(DDPRUN)
ENDPOINT = "--rdzv_endpoint host0:29400"


def name_hosts(hosts):
    """In the namespaces: the pages' names for n1, n2 …, and a /tmp of their own, where commands find no other test's jobs."""
    with open("/etc/hosts", encoding="utf-8") as source:
        named = "host0" in source.read()
    if not named:
        subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp"], check=True)
        with open("/etc/hosts", "a", encoding="utf-8") as sink:
            sink.writelines(f"10.77.0.{host + 1} host{host}\n" for host in range(hosts))


def is_listed(block, keys):
    """Whether a block of commands has one of these keys of elsewhere.py."""
    first = block.lines[0].removeprefix("$ ")
    return block.shows_commands() and any(page == block.page and first.startswith(begins) for page, begins in keys)


class PageTestCase(cluster.ClusterTestCaseMixin, BedTestCase):
    hosts = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        name_hosts(cls.hosts)

    def setUp(self):
        super().setUp()
        self.blocks, self.started = iter(()), 0
        # The environment of a user who has built ddprun but not installed it.
        self.bed.environment["PATH"] = os.pathsep.join((BIN, self.bed.folder, os.environ["PATH"]))
        self.bed.environment.pop("PYTHONPATH", None)

    # ---------------------------------------------------------------- situations

    def have(self, **files):
        """Writes files, by name with "_" for "."; train.py is there anyway."""
        for name, text in files.items():
            self.bed.write(name.replace("_", ".", 1), text)

    def training(self):
        """train.py is a training that marks its progress, by the module `ddprun`."""
        shutil.copy(os.path.join(HERE, "training.py"), self.bed.path("train.py"))
        self.bed.environment["PYTHONPATH"] = os.path.join(ROOT, "python")

    def stand_in(self, name, text):
        """A program of this name comes first in PATH."""
        self.bed.write(name, f"#!/bin/sh\n{text}\n", 0o755)

    def start(self, words, host=0, env=None):
        """A command of a shell on a host, in the background."""
        self.started += 1
        name = f"host{host}-{self.started}"
        sockets = self.bed.path(f"sockets{host}")  # so that commands find what runs on their own host
        os.makedirs(sockets, mode=0o700, exist_ok=True)
        return self.bed.start_process(name, self.on_host(words, host), output=self.bed.path(f"{name}.out"),
                                      env={**self.bed.environment, "TMPDIR": sockets, "XDG_RUNTIME_DIR": sockets,
                                           "XDG_STATE_HOME": self.bed.path(f"state{host}"), **(env or {})})

    def on_host(self, words, host=0):
        script = 'hostname "$0" && exec bash -c "$1"'
        return self.cluster.command(host + 1, ["sh", "-c", script, f"host{host}", words])

    def job(self, words, nodes=2, workers=4, env=None):
        """`ddprun …` on so many nodes; returns the agents once so many workers run."""
        log = f"--event_log {self.bed.events.path}"
        agents = []
        for node in range(nodes):  # one after the other, so that host0 is the first
            agents.append(self.start(f"exec ddprun {log} {words}", node, env))
            self.bed.event("node_joined", count=node + 1, alive=agents)
        self.bed.event("worker_started", count=workers, alive=agents)
        return agents

    def kill(self, rank, workers_per_node=2, last=False):
        """SIGKILL for a rank's worker of the newest generation, and the next generation is awaited unless it is the last."""
        self.bed.follower.refresh()
        place = next(line for line in reversed(self.bed.events.find("assignment"))
                     if 0 <= rank - int(line["rank"]) < workers_per_node)
        worker = next(line for line in reversed(self.bed.events.find("worker_started", who=place["who"]))
                      if int(line["local_rank"]) == rank - int(place["rank"]))
        os.kill(int(worker["worker_pid"]), signal.SIGKILL)
        if last:
            return
        after = int(place["generation"])
        self.bed.wait(lambda: [line for line in self.bed.events.find("started") if int(line["generation"]) > after], "a restart")

    def end(self, agents, status=0):
        """Lets train.py end, and checks the exit status of all agents."""
        self.have(done="")
        for agent in agents:
            self.assert_status(status, agent)

    # ---------------------------------------------------------------- following

    def open(self, page):
        """From here on run() carries out the blocks of this page."""
        self.page = page
        self.blocks = (block for block in pages.blocks(page) if not is_listed(block, {**ELSEWHERE, **UNRUN}))

    def next_block(self):
        """The next one with commands; files before it are written."""
        for block in self.blocks:
            if block.file():
                self.bed.write(block.file(), block.text())
            elif block.shows_commands():
                self.assertEqual("console", block.language, f"{block} shows commands, but isn't marked as ```console")
                return block
        return None

    def close(self):
        block = self.next_block()
        self.assertIsNone(block, f"{block} is run by no test: neither here, nor as elsewhere.py says")

    def run_page(self, begins="", **options):
        """Carries out the next block; its first command must begin with `begins`. Options: those of carry_out()."""
        block = self.next_block()
        self.assertIsNotNone(block, f"{self.page} has no further commands, {begins!r} neither")
        commands = block.commands()
        self.assertTrue(commands[0].words.startswith(begins), f"{block} begins with {commands[0].words!r}, not {begins!r}")
        with self.subTest(block=str(block)):
            beside = []
            for command in commands:
                if command.host not in ("", "host0"):
                    beside.append(command)
            for command in commands:
                if command not in beside:
                    self.carry_out(command, others=[(other.words, int(other.host[4:])) for other in beside], **options)

    def carry_out(self, command, hosts=1, on=0, others=(), until_shown=False, retry=False, env=None, replace=(), only_here="",
                  together="", elsewhere=False, kill=None):
        """Runs a command, and compares what it prints.

        hosts: so many run it at once, and host0's output counts; on: that of another one.
        until_shown: it doesn't end by itself, and gets SIGINT when all was printed.
        retry: it is run again until it prints that, because what it asks for comes with the next heartbeat.
        replace: [(what stands there, what is run in its place)] of what a test can't have.
        only_here: what begins so runs on host0 alone; together: what has this runs on two hosts.
        elsewhere: the page shows another machine, so neither output nor status is compared.
        kill: the local rank that gets SIGKILL when a step was printed, of a command with PET_EVENT_LOG.
        """
        words = command.words
        for before, after in replace:
            words = words.replace(before, after)
        if only_here and words.startswith(only_here):
            hosts = 1
        if together and together in words:
            hosts = 2
        first = time.monotonic()
        while True:
            beside = [self.start(words, host, env) for host in range(1, hosts)]
            beside += [self.start(other, host, env) for other, host in others]
            process = self.start(words, on, env)

            def wrong():  # beside what ddprun suspects of a worker on a loaded machine
                lines = process.text().splitlines()
                return pages.differences(command.shown, [line for line in lines if " holds up the job: " not in line])
            if kill is not None:
                self.bed.wait(lambda: re.search(r"step \d+", process.text()), "a step", alive=[process])
                os.kill(int(self.bed.event("worker_started", local_rank=kill)["worker_pid"]), signal.SIGKILL)
            if until_shown:
                self.bed.wait(lambda: not wrong() or process.ended(), f"what {self.page} shows of {words}")
                process.signal(signal.SIGINT)
            status = process.wait(PATIENCE)
            if not retry or not wrong() or process.started > first + PATIENCE / 4 or ends_within(self.bed.agents[0].pid, 0.2):
                break
        text = f"{self.page}: {words}\n{process.text()}"
        if not elsewhere:
            self.assertEqual([], wrong(), text)
        if not until_shown and not elsewhere:
            self.assertEqual(command.status, status, text)
        for other in beside:
            self.assert_status(command.status, other)
