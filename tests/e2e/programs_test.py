#!/usr/bin/env python3
"""`ddprun --nnodes 2 --node_rank 0|1 --master_addr 127.0.0.1 …` in two shells, with all kinds of programs."""

import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import BedTestCase, free_port  # noqa: E402

# Whole lines: workers run under `python -u`, as torchrun's do, where print() writes piece by piece.
PYTHON = ("import os, sys\n"
          "sys.stdout.write(' '.join([os.environ['RANK'], os.environ['WORLD_SIZE'], *sys.argv[1:]]) + '\\n')\n")
SHELL = '#!/bin/sh\necho "$RANK" "$WORLD_SIZE" "$@"\n'
CPP = """#include <cstdlib>
#include <cstdio>
int main(int argc, char** argv) {
  std::printf("%s %s", std::getenv("RANK"), std::getenv("WORLD_SIZE"));
  for (int i = 1; i < argc; ++i) std::printf(" %s", argv[i]);
  std::printf("\\n");
}
"""


class Programs(BedTestCase):
    def two_nodes(self, command, nproc=1, env=None):
        """Runs the command as two nodes; returns the sorted lines of all workers."""
        port = free_port()
        static = ["--nnodes", 2, "--master_addr", "127.0.0.1", "--master_port", port, "--nproc_per_node", nproc]
        # In either order; here the node that doesn't host comes first.
        agents = [self.bed.run(f"node{rank}", [*static, "--node_rank", rank, *command], env=env) for rank in (1, 0)]
        for agent in agents:
            self.assert_status(0, agent)
        return sorted(line for agent in agents for line in agent.text().splitlines() if line[:1].isdigit())

    def test_python_script(self):
        script = self.bed.write("train.py", PYTHON)
        self.assertEqual(["0 2 --lr 0.1", "1 2 --lr 0.1"], self.two_nodes([script, "--lr", "0.1"]))

    def test_python_module(self):
        os.mkdir(self.bed.path("package"))
        self.bed.write("package/__init__.py", "")
        self.bed.write("package/train.py", PYTHON)
        self.assertEqual(["0 2 -m", "1 2 -m"], self.two_nodes(["-m", "package.train", "-m"],
                                                               env={"PYTHONPATH": self.bed.folder}))

    def test_shell_script(self):
        script = self.bed.write("train.sh", SHELL, 0o755)
        self.assertEqual(["0 4 a b", "1 4 a b", "2 4 a b", "3 4 a b"],
                         self.two_nodes(["--no_python", script, "a", "b"], nproc=2))

    def test_cpp_program(self):
        if shutil.which("g++") is None:
            self.skipTest("g++ is not installed")
        source = self.bed.write("train.cc", CPP)
        subprocess.run(["g++", "-o", self.bed.path("train"), source], check=True)
        self.assertEqual(["0 2 x", "1 2 x"], self.two_nodes(["--no_python", self.bed.path("train"), "x"]))

    def test_program_of_the_path_and_macros(self):
        lines = self.two_nodes(["--no_python", "echo", "7", "${local_rank}", "$local_rank", "${other}", "$$x"], nproc=2)
        self.assertEqual(["7 0 0 ${other} $x"] * 2 + ["7 1 1 ${other} $x"] * 2, lines)


# Scripts that a shell gives to Python, as pip and uv write them, and as people do. Each also runs by itself, in the shell that
# its first line names.
POLYGLOTS = {
    "pip": ("#!/bin/sh\n", "'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"),
    "uv": ("#!/bin/sh\n# -*- coding: utf-8 -*-\n", "'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"),
    "words": ("#!/usr/bin/env bash\n\n", "\"exec\" \"$(dirname {python})/python3\" \"$0\" \"$@\"\n"),
    "colon": ("#!/bin/dash\n# started by hand\n", "\"\"\":\"\nexec {python} \"$0\" \"$@\"\n\"\"\"\n"),
    "single": ("#! /bin/bash -e\n", "''':'\nexec {python} \"$0\" \"$@\"\n'''\n"),
}


class Polyglots(BedTestCase):
    def test_run_as_python_and_by_themselves(self):
        for name, (first, second) in POLYGLOTS.items():
            with self.subTest(name=name):
                text = first + second.format(python=sys.executable) + PYTHON
                script = self.bed.write(name, text, 0o755)
                for options in ([], ["--no_python"]):
                    agent = self.bed.run(f"{name}{len(options)}", ["--nproc_per_node", 2, *options, script, "a"])
                    self.assert_status(0, agent)
                    # On a busy machine the agent's own line may come behind a worker's.
                    self.assertEqual(["0 2 a", "1 2 a"], sorted(re.findall(r"^\d 2 a$", agent.text(), re.MULTILINE)))

    def test_with_the_line_ends_of_windows_and_a_mark_of_their_order(self):
        for name, mark in (("crlf", ""), ("bom", "\ufeff")):
            with self.subTest(name=name):
                text = mark + "".join(POLYGLOTS["pip"]).format(python=sys.executable) + PYTHON
                script = self.bed.write(name, text.replace("\n", "\r\n") if not mark else text)
                agent = self.bed.run(name, [script])
                self.assert_status(0, agent)
                self.assertEqual("0 1", agent.text().splitlines()[-1])

    def test_twin_of_a_shell(self):
        agent = self.bed.run("ddprun", [self.bed.write("train", "#!/bin/sh\necho 'no Python'\n")])
        self.assert_status(1, agent)
        self.assertIn("is a shell script, and not for Python: add --no_python", agent.text())


class OneNode(BedTestCase):
    def output_of(self, arguments, env=None, **options):
        agent = self.bed.run("ddprun", arguments, env=env, **options)
        self.assert_status(0, agent)
        return agent.text()

    def test_environment_is_torchruns(self):
        text = self.output_of(["--nproc_per_node", 2, "--role", "trainer", "--max_restarts", 3, "--no_python", "env"])
        for expected in ("RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
                         "GROUP_WORLD_SIZE=1", "ROLE_NAME=trainer", "ROLE_RANK=1", "ROLE_WORLD_SIZE=2",
                         "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=3",
                         "TORCHELASTIC_USE_AGENT_STORE=True", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OMP_NUM_THREADS=1",
                         "DDPRUN_GENERATION=1"):
            self.assertIn("\n" + expected + "\n", "\n" + text)
        for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "DDPRUN_AGENT"):
            self.assertRegex(text, rf"(?m)^{name}=.+$")

    def test_stdin_and_folder_are_inherited(self):
        with open(self.bed.write("in", "hello\n"), encoding="utf-8") as stdin:
            self.assertEqual("hello\n", self.output_of(["--no_python", "cat"], stdin=stdin))

    def test_workers_lead_their_sessions(self):
        script = self.bed.write("s.py", "import os\nprint('7', os.getpid() == os.getsid(0) == os.getpgid(0))\n")
        self.assertIn("7 True", self.output_of([script]))

    def test_pet_variables(self):
        script = self.bed.write("s.py", PYTHON)
        both = self.output_of([script], env={"PET_NPROC_PER_NODE": "2"}).split("\n")
        self.assertEqual(["0 2", "1 2"], sorted(line for line in both if line[:1].isdigit()))

    def test_help_and_version(self):
        self.assertIn("--help-all", self.output_of(["--help"]))
        text = self.output_of(["--help-all"])
        for name in ("--nproc-per-node", "--nproc_per_node", "--rdzv_endpoint", "--rdzv-endpoint", "--max_restarts"):
            self.assertIn(name, text)
        self.assertRegex(self.output_of(["--version"]), r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
