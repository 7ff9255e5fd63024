#!/usr/bin/env python3
"""The README's commands do what it says."""

import os
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import pages  # noqa: E402
from bed import ROOT, BedTestCase, free_port  # noqa: E402

TRAIN = "import os\nprint('trained', os.environ['RANK'], os.environ['WORLD_SIZE'], flush=True)\n"


def readme():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as source:
        return source.read()


def first_block():
    """The commands of the first code block, without their comments."""
    block = pages.blocks("README.md")[0]
    return [command.words.split("#")[0].strip() for command in block.commands()]


class Commands(unittest.TestCase):
    def test_first_commands(self):
        self.assertEqual(["scripts/demo", "scripts/test"], first_block())
        for command in first_block():
            self.assertTrue(os.access(os.path.join(ROOT, command), os.X_OK), command)

    def test_ci_runs_the_test_command(self):
        with open(os.path.join(ROOT, ".ci", "run"), encoding="utf-8") as source:
            self.assertIn(f"exec {first_block()[1]}\n", source.read())

    def test_demo(self):
        """The first command, in its short form: the accuracy line is the last."""
        result = subprocess.run([os.path.join(ROOT, first_block()[0]), "--short"], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=False)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        accuracy = re.fullmatch(r"Final accuracy .*: ([0-9.]+) %", result.stdout.splitlines()[-1])
        self.assertIsNotNone(accuracy, result.stdout)
        self.assertGreaterEqual(float(accuracy.group(1)), 97.0)
        for step in ("FAULT: the worker", "FAULT: node b", "noticed after", "training goes on", "nothing is left behind"):
            self.assertIn(step, result.stdout)


class OwnJob(BedTestCase):
    """The right column of "Run your own job", each line on loopback."""

    def test_every_line_of_the_table(self):
        lines = re.findall(r"^\| `torchrun [^`]*` \| `ddprun ([^`]*)` \|$", readme(), re.MULTILINE)
        self.assertGreaterEqual(len(lines), 5)
        self.bed.write("train.py", TRAIN)
        self.bed.write("train", "#!/bin/sh\necho trained $RANK $WORLD_SIZE\n", 0o755)
        os.mkdir(self.bed.path("package"))
        self.bed.write("package/train.py", TRAIN)
        for line in lines:
            with self.subTest(line=line):
                self.run_line(line)

    def run_line(self, line):
        """Runs it as often as it needs nodes; all must train."""
        words = shlex.split(line.replace("host0:29400", f"127.0.0.1:{free_port()}").replace("host0", "127.0.0.1"))
        if "--master_addr" in words:
            words[words.index("--master_addr"):0] = ["--master_port", str(free_port())]
        nodes = int(words[words.index("--nnodes") + 1].split(":")[-1]) if "--nnodes" in words else 1
        agents = []
        for node in range(nodes):
            mine = list(words)
            if "--node_rank" in mine:
                mine[mine.index("--node_rank") + 1] = str(node)
            agents.append(self.bed.run(f"{node}: {line}"[:40].replace("/", "_"), mine, env={"PYTHONPATH": self.bed.folder}))
        for agent in agents:
            self.assert_status(0, agent)
            self.assertIn("trained", agent.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
