#!/usr/bin/env python3
"""ddprun as it is installed: another CMake project finds it, builds a program and runs it under the installed ddprun."""

import json
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["DDPRUN_BUILD_DIR"]


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-install-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_command(self, *command):
        """Its output; the test fails when it does."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(result.returncode, 0, f"{' '.join(command)}\n{result.stdout}")
        return result.stdout

    def test_another_project_builds_and_runs_a_program(self):
        self.run_command("cmake", "--install", BUILD, "--prefix", self.path("prefix"))
        configured = self.run_command("cmake", "-S", os.path.join(HERE, "consumer"), "-B", self.path("build"), "-G", "Ninja",
                                      f"-DCMAKE_PREFIX_PATH={self.path('prefix')}")
        self.assertIn("LibTorch 2.11.0", configured)
        self.run_command("cmake", "--build", self.path("build"))
        output = self.run_command(self.path("prefix", "bin", "ddprun"), "--standalone", "--nproc_per_node", "2",
                                  "--no_python", self.path("build", "consumer"), self.path("run"))
        self.assertIn("consumer\n  processes: 2\n", output)
        self.assertIn("step 20/20 (100%)", output)
        with open(self.path("run", "metrics.jsonl"), encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        self.assertEqual([record["step"] for record in records], list(range(1, 21)))
        self.assertLess(records[-1]["loss"], records[0]["loss"] / 2)

    def test_a_version_that_is_not_there_is_refused(self):
        self.run_command("cmake", "--install", BUILD, "--prefix", self.path("prefix"))
        os.mkdir(self.path("project"))
        with open(self.path("project", "CMakeLists.txt"), "w", encoding="utf-8") as project:
            project.write("cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n"
                          "find_package(ddprun 7.0 REQUIRED)\n")
        result = subprocess.run(["cmake", "-S", self.path("project"), "-B", self.path("build"), "-G", "Ninja",
                                 f"-DCMAKE_PREFIX_PATH={self.path('prefix')}"], capture_output=True, text=True, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("7.0", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
