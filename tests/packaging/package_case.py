"""What the tests of packages share."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("DDPRUN_BUILD_DIR", os.path.join(ROOT, "build", "dev"))
DDPRUN = os.environ.get("DDPRUN_BIN", os.path.join(BUILD, "bin", "ddprun"))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")

# Two workers find their places and each other's number.
TRAIN = """import os, sys
sys.stdout.write(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n")
"""


class PackageCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddprun-package-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as sink:
            sink.write(text)
        return self.path(name)

    def output(self, *command, status=0, **options):
        """What a command says on both streams; the test fails when its status is another one."""
        result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                check=False, **options)
        self.assertEqual(status, result.returncode, f"{command}\n{result.stdout}")
        return result.stdout

    def assert_trains(self, *ddprun, **options):
        """The first run of a new user, who calls it by these words."""
        text = self.output(*ddprun, "--standalone", "--nproc_per_node", "2", self.write("train.py", TRAIN), **options)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2\n", text)


def commands(text):
    """The commands that `ddprun --help` lists."""
    table = text[text.index("\nCommands"):].split("\n\n")[0].split("\n")[2:]
    return [line[10:].split()[0] for line in table]
