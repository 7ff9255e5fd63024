#!/usr/bin/env python3
"""Which Python runs a script (docs/PYTHON.md), with real environments: of the tool, of a project, of conda."""

import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, BedTestCase  # noqa: E402

PACKAGES = os.path.join("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


class PythonChoice(BedTestCase):
    def setUp(self):
        super().setUp()
        self.script = self.bed.write("which.py", "import sys\nprint('PREFIX', sys.prefix)\n")
        # As pipx and uv tool leave it: an environment of its own, and a link in a folder of PATH.
        self.tool = self.venv("tool")
        shutil.copy(DDPRUN, os.path.join(self.tool, "bin", "ddprun"))
        os.mkdir(self.bed.path("links"))
        self.link = self.bed.path("links/ddprun")
        os.symlink(os.path.join(self.tool, "bin", "ddprun"), self.link)

    def venv(self, name):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.bed.path(name)], check=True)
        return self.bed.path(name)

    def conda(self, name):
        """A prefix with bin/python3, which is no virtual environment."""
        python = self.bed.path(f"{name}/bin/python3")
        os.makedirs(os.path.dirname(python))
        with open(python, "w", encoding="utf-8") as sink:
            sink.write(f"#!/bin/sh\necho PREFIX {self.bed.path(name)}\n")
        os.chmod(python, 0o755)
        return self.bed.path(name)

    def prefix(self, program=None, words=(), path=(), **variables):
        """The prefix of the Python that ran the script."""
        environment = {name: value for name, value in self.bed.environment.items()
                       if name not in ("PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME")}
        environment["PATH"] = os.pathsep.join([*(os.path.join(folder, "bin") for folder in path), environment["PATH"]])
        result = subprocess.run([program or self.link, "--standalone", *words, self.script], stdin=subprocess.DEVNULL, text=True,
                                capture_output=True, check=False, cwd=self.bed.folder, env={**environment, **variables},
                                timeout=30 * SLOW)
        self.assertEqual(0, result.returncode, result.stderr)
        return result.stdout.split(maxsplit=1)[1].strip()

    def test_an_active_environment_wins_over_a_tools(self):
        project = self.venv("my project")
        linked = self.bed.path("linked")
        os.symlink(project, linked)
        self.assertEqual(self.tool, self.prefix())
        self.assertEqual(project, self.prefix(VIRTUAL_ENV=project, path=[project]))
        self.assertEqual(project, self.prefix(VIRTUAL_ENV=project))
        self.assertIn(self.prefix(VIRTUAL_ENV=linked), (project, linked))
        conda = self.conda("conda")
        self.assertEqual(conda, self.prefix(CONDA_PREFIX=conda))
        # With both, what was activated last is the first of PATH.
        both = {"VIRTUAL_ENV": project, "CONDA_PREFIX": conda}
        self.assertEqual(project, self.prefix(**both))
        self.assertEqual(project, self.prefix(**both, path=[project, conda]))
        self.assertEqual(conda, self.prefix(**both, path=[conda, project]))
        # PYTHON_EXEC is first, as with torchrun.
        self.assertEqual(sys.prefix, self.prefix(**both, PYTHON_EXEC=sys.executable))

    def test_what_isnt_active_counts_for_nothing(self):
        self.venv(".venv")
        self.assertEqual(self.tool, self.prefix())
        self.assertEqual(self.tool, self.prefix(VIRTUAL_ENV=self.bed.path("gone")))
        self.assertEqual(self.tool, self.prefix(VIRTUAL_ENV=self.tool))

    def test_an_environment_with_torch_keeps_its_ddprun(self):
        """As torchrun, which runs the Python that it was installed for, whatever is active."""
        project = self.venv("project")
        self.assertEqual(project, self.prefix(VIRTUAL_ENV=project))
        os.mkdir(os.path.join(self.tool, PACKAGES, "torch"))
        for program in (self.link, os.path.join(self.tool, "bin", "ddprun")):
            self.assertEqual(self.tool, self.prefix(program, VIRTUAL_ENV=project, path=[project]))

    def test_a_missing_module_names_both_pythons(self):
        project = self.venv("project")
        os.mkdir(os.path.join(project, PACKAGES, "torch"))
        self.script = self.bed.write("train.py", "import torch.nn\n")
        python = os.path.join(self.tool, "bin", "python3")
        environment = {**self.bed.environment, "PYTHON_EXEC": python, "VIRTUAL_ENV": project}
        result = subprocess.run([self.link, "--standalone", self.script], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, check=False, cwd=self.bed.folder, env=environment, timeout=30 * SLOW)
        self.assertEqual(1, result.returncode)
        text = " ".join(result.stderr.split())
        self.assertIn(f"module : {python} ran the script, and has no torch; {project}/bin/python3 ($VIRTUAL_ENV) has it", text)
        self.assertIn(f"next : PYTHON_EXEC={project}/bin/python3 ddprun …", text)

    def test_python_dash_m_is_that_python(self):
        """The environment isn't activated: its own ddprun runs, with its interpreter for the workers."""
        environment = {**self.bed.environment, "PYTHONPATH": os.path.join(ROOT, "python")}
        for name in ("DDPRUN_BIN", "PYTHON_EXEC"):
            environment.pop(name, None)
        python = os.path.join(self.tool, "bin", "python3")
        result = subprocess.run([python, "-m", "ddprun", "--standalone", self.script], capture_output=True, text=True,
                                check=False, env=environment, timeout=30 * SLOW)
        self.assertEqual((0, f"PREFIX {self.tool}\n"), (result.returncode, result.stdout), result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
