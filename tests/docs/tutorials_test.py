#!/usr/bin/env python3
"""The tutorials do what they show: their files are written, their commands run, each line that they show is printed."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, TORCH_PYTHON, BedTestCase, torch_is_there  # noqa: E402

FOLDER = os.path.join(ROOT, "docs", "tutorials")
_BLOCK = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """[(language, word behind it, text)] of a tutorial's code blocks."""
    with open(os.path.join(FOLDER, page), encoding="utf-8") as source:
        return _BLOCK.findall(source.read())


class Tutorials(BedTestCase):
    def follow(self, page):
        """How many commands it has shown."""
        shown = 0
        for language, needs, text in blocks(page):
            name = re.match(r"# file: (\S+)\n", text)
            if name:
                self.bed.write(name.group(1), text)
            elif language == "console":
                self.carry_out(text, TORCH_PYTHON if needs == "torch" else sys.executable)
                shown += 1
        return shown

    def carry_out(self, text, python):
        """One command behind "$ ", the lines that it prints among others, and its status if that isn't 0."""
        command, *lines = text.splitlines()
        status = int(lines.pop()[6:-1]) if lines[-1].startswith("[exit ") else 0
        # As whoever has built ddprun, and installed nothing: the wheel's module isn't there.
        environment = {**self.bed.environment, "PYTHON_EXEC": python,
                       "PATH": os.path.dirname(DDPRUN) + os.pathsep + os.environ["PATH"]}
        environment.pop("PYTHONPATH", None)
        result = subprocess.run(["bash", "-c", command.removeprefix("$ ")], cwd=self.bed.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=30 * SLOW)
        self.assertEqual(status, result.returncode, f"{command}\n{result.stdout}")
        printed = result.stdout.splitlines()
        for line in lines:
            self.assertIn(line, printed, f"{command}\n{result.stdout}")

    def test_first_run(self):
        self.assertEqual(4, self.follow("first-run.md"))

    @unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
    def test_from_torchrun(self):
        self.assertEqual(2, self.follow("from-torchrun.md"))

    def test_from_accelerate(self):
        self.assertEqual(1, self.follow("from-accelerate.md"))

    def test_slurm(self):
        self.assertEqual(2, self.follow("slurm.md"))

    def test_kubernetes(self):
        self.assertEqual(2, self.follow("kubernetes.md"))

    def test_failures(self):
        self.assertEqual(1, self.follow("failures.md"))

    def test_all_are_followed(self):
        pages = {name[5:].replace("_", "-") + ".md" for name in dir(self) if name.startswith("test_")}
        pages.add("cpp.md")  # by tests/worker/install_test.py
        self.assertLessEqual(set(os.listdir(FOLDER)), pages)


if __name__ == "__main__":
    unittest.main(verbosity=2)
