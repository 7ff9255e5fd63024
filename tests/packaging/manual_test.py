#!/usr/bin/env python3
"""The manual page and the completion, made of --help (cmake/manual.py): all options, and usable."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cmake"))

from manual import read_help  # noqa: E402
from bed import SLOW, read_until  # noqa: E402
from package_case import BUILD, DDPRUN, ROOT, PackageCase, commands  # noqa: E402


class ManualCase(PackageCase):
    def setUp(self):
        super().setUp()
        self.output(sys.executable, os.path.join(ROOT, "cmake", "manual.py"), DDPRUN, self.folder)

    def text(self, name):
        with open(self.path(name), encoding="utf-8") as source:
            return source.read()

    def options(self, *words):
        """The long options that a command's help shows."""
        every = "--help" if words and words[0] not in ("test", "config") else "--help-all"
        return re.findall(r"(--[a-z][a-z0-9_-]+)", "\n".join(
            line for line in self.output(DDPRUN, *words, every).splitlines() if line.startswith("  -")))


class Manual(ManualCase):
    def test_the_build_has_made_the_same(self):
        for name in ("ddprun.1", "ddprun.bash", "_ddprun"):
            with open(os.path.join(BUILD, "manual", name), encoding="utf-8") as built:
                self.assertEqual(self.text(name), built.read(), "out of date: build the target ddprun_manual")

    def test_every_option_of_every_command_is_in_it(self):
        page = self.text("ddprun.1").replace("\\-", "-")
        names = commands(self.output(DDPRUN, "--help"))
        self.assertIn("chaos", names)
        for words in ([], *([name] for name in names)):
            for option in self.options(*words):
                self.assertIn(option, page, words)
        for name in names:
            self.assertIn(f".SS ddprun {name}\n", page)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_groff_has_nothing_to_say(self):
        result = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-wall", "-z", self.path("ddprun.1")], capture_output=True,
                                text=True, check=False)
        self.assertEqual((0, ""), (result.returncode, result.stderr))


class HandWrittenHelp(unittest.TestCase):
    """The help of commands that pass on others' options, and so have no table of their own."""

    def test_options_are_read_from_the_text(self):
        told = read_help("usage: x\n\n  -s, --submit FILE\n      Give it\n      away.\n  --all\n      All.\n\nThe rest.\n")
        self.assertEqual([{"names": ["-s", "--submit"], "value": "FILE", "help": "Give it away."},
                          {"names": ["--all"], "value": None, "help": "All."}], told["groups"][0]["options"])
        self.assertEqual("usage: x\n\n\nThe rest.\n", told["introduction"])


class Bash(ManualCase):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = (f"source {self.path('ddprun.bash')}; COMP_WORDS=(ddprun \"$@\"); COMP_CWORD=$#; _ddprun; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        return self.output("bash", "-c", script, "bash", *words, cwd=self.folder).split()

    def test_options_and_commands(self):
        self.assertEqual(["--nnodes"], self.complete("--nno"))
        self.assertIn("--nproc_per_node", self.complete("--nnodes", "2", "--nproc"))
        self.assertIn("chaos", self.complete("ch"))
        self.assertEqual([], self.complete("chaos", "--nno"))
        for name in commands(self.output(DDPRUN, "--help")):
            offered = self.complete(name, "--")
            for option in self.options(name):
                self.assertIn(option, offered, name)

    def test_values(self):
        self.assertEqual(["restart", "report"], self.complete("--on_hang", ""))
        self.write("job.yaml", "")
        os.mkdir(self.path("jobs"))
        self.assertEqual(["job.yaml", "jobs"], sorted(self.complete("--config", "job")))
        self.assertEqual(["jobs"], self.complete("--log_dir", "job"))
        self.assertEqual([], self.complete("--nnodes", ""))

    def test_scripts(self):
        self.write("train.py", "")
        self.assertIn("train.py", self.complete("--nnodes", "2", "tr"))


@unittest.skipUnless(shutil.which("zsh"), "no zsh")
class Zsh(ManualCase):
    def test_it_is_zsh_and_knows_the_options(self):
        self.output("zsh", "-n", self.path("_ddprun"))
        text = self.text("_ddprun")
        self.assertTrue(text.startswith("#compdef ddprun\n"))
        for option in self.options():
            self.assertIn(f"){option}[", text)


    def complete(self, line, expected):
        """Types a line and a tab into an interactive zsh and waits for what becomes of it."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="dumb", ZDOTDIR=self.folder)
            os.execvp("zsh", ["zsh", "-f", "-i"])
        with open(terminal, "r+b", buffering=0) as stream:
            # The prompt isn't spelled out in what is typed, so that its echo doesn't look like it.
            stream.write(f"PS1='RE''ADY> '; fpath=({self.folder} $fpath); autoload -U compinit; compinit -u -D\n".encode())
            read_until(stream, b"READY> ", 20 * SLOW)
            stream.write(line.encode() + b"\t")
            read_until(stream, b"\x07?".join(re.escape(bytes([byte])) for byte in expected.encode()), 20 * SLOW)  # bells
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def test_completes(self):
        for line, expected in (("ddprun --nno", "ddprun --nnodes "), ("ddprun --on_hang rep", "--on_hang report "),
                               ("ddprun --nnodes 2 --on-h", "--on-hang "), ("ddprun cha", "ddprun chaos "),
                               ("ddprun chaos --from-l", "chaos --from-logs ")):
            self.complete(line, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
