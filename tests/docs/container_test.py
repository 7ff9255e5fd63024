#!/usr/bin/env python3
"""docker/: the linter has nothing to say, the compose file's options exist, and on demand the whole image is built (its
runtime stage always is: container_demo_test.py)."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
HADOLINT = os.path.join(CACHE, "hadolint", "bin", "hadolint")
DOCKERFILE = os.path.join(ROOT, "docker", "Dockerfile")


class Containers(unittest.TestCase):
    def lint(self, text):
        return subprocess.run([HADOLINT, "-"], input=text, capture_output=True, text=True, check=False)

    def setUp(self):
        with open(DOCKERFILE, encoding="utf-8") as source:
            self.dockerfile = source.read()

    def test_hadolint(self):
        if not os.access(HADOLINT, os.X_OK):
            self.skipTest(f"{HADOLINT} is not installed (scripts/setup does that)")
        result = self.lint(self.dockerfile)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        # Negative control: it does find a mistake.
        self.assertNotEqual(0, self.lint("FROM debian\nRUN cd /tmp && sudo true\n").returncode)

    def test_copied_files_exist(self):
        for sources in re.findall(r"^COPY (?!--from)(.*)$", self.dockerfile, re.MULTILINE):
            for source in sources.split()[:-1]:
                self.assertTrue(os.path.exists(os.path.join(ROOT, source)), source)

    def test_options_of_the_compose_file_exist(self):
        with open(os.path.join(ROOT, "docker", "compose.yaml"), encoding="utf-8") as source:
            options = re.findall(r"^\s+- (--\w+)", source.read(), re.MULTILINE)
        self.assertGreater(len(options), 3)
        text = "".join(
            subprocess.run(words, capture_output=True, text=True, check=False).stdout
            for words in ([DDPRUN, "--help-all"], [os.path.join(ROOT, "build", "release", "bin", "digits"), "--help"])
            if os.path.exists(words[0]))
        for option in options:
            self.assertIn(option, text)

    def test_image_builds(self):
        if os.environ.get("DDPRUN_IMAGE") != "whole":
            self.skipTest("the builder's stage takes a quarter of an hour: DDPRUN_IMAGE=whole builds it")
        probe = subprocess.run(["buildah", "pull", "--quiet", "docker.io/library/debian:12"], capture_output=True, text=True,
                               check=False)
        if probe.returncode != 0:
            self.skipTest("the base image debian:12 can't be pulled here")
        result = subprocess.run(["buildah", "build", "--isolation", "chroot", "-f", DOCKERFILE, ROOT], capture_output=True,
                                text=True, check=False)
        self.assertEqual(0, result.returncode, result.stdout[-3000:] + result.stderr[-3000:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
