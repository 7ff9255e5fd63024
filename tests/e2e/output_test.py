#!/usr/bin/env python3
"""Where the workers' output goes: inherited, prefixed, into files; nothing is lost or changed."""

import glob
import hashlib
import os
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import BedTestCase  # noqa: E402

TALK = "import sys\nprint('to stdout', flush=True)\nprint('to stderr', file=sys.stderr, flush=True)\n"
# 8 MiB of every byte value, no newline at the end, to both streams.
FLOOD = """import os, sys
block = bytes(range(256)) * 256
for _ in range(128):
    for fd in (1, 2):
        view = memoryview(block)
        while view:
            view = view[os.write(fd, view):]
os.write(1, b"the end"); os.write(2, b"the end")
"""
FLOOD_DIGEST = hashlib.sha256(bytes(range(256)) * 256 * 128 + b"the end").hexdigest()


# Rank 0 waits until both others are there and lets them go on; then all say the same.
ALIKE = """import os
rank = int(os.environ["RANK"])
if rank == 0:
    for other in (1, 2): open(f"FOLDERhere{other}").close()
    for other in (1, 2): open(f"FOLDERgo{other}", "w").close()
else:
    open(f"FOLDERhere{rank}", "w").close()
    open(f"FOLDERgo{rank}").close()
print("training", flush=True)
print("rank", rank, flush=True)
"""


class Output(BedTestCase):
    def run_script(self, text, *options):
        """(stdout, stderr) of one run."""
        script = self.bed.write("script.py", text)
        with open(self.bed.path("out"), "wb") as out, open(self.bed.path("err"), "wb") as err:
            agent = self.bed.run("ddprun", [*options, script], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            self.assert_status(0, agent)
        return self.read(self.bed.path("out")), self.read(self.bed.path("err"))

    @staticmethod
    def read(path):
        with open(path, "rb") as source:
            return source.read()

    def log(self, folder, rank, name):
        found = glob.glob(os.path.join(folder, "*", "attempt_0", str(rank), name))
        self.assertEqual(1, len(found), f"{name} of rank {rank} below {folder}: {glob.glob(folder + '/**', recursive=True)}")
        return self.read(found[0])

    def test_inherited_by_default(self):
        out, err = self.run_script(TALK)
        self.assertEqual(b"to stdout\n", out)
        self.assertEqual(b"to stderr\n", err)

    def test_tee(self):
        folder = self.bed.path("logs")
        out, err = self.run_script(TALK, "--nproc_per_node", 2, "--tee", 3, "--log_dir", folder)
        self.assertEqual([b"[default0]:to stdout", b"[default1]:to stdout"], sorted(out.splitlines()))
        for line in (b"[default0]:to stderr", b"[default1]:to stderr"):
            self.assertIn(line, err.splitlines())
        for rank in (0, 1):
            self.assertEqual(b"to stdout\n", self.log(folder, rank, "stdout.log"))
            self.assertEqual(b"to stderr\n", self.log(folder, rank, "stderr.log"))

    def test_redirects(self):
        folder = self.bed.path("logs")
        out, err = self.run_script(TALK, "--redirects", 1, "--log_dir", folder)
        self.assertEqual(b"", out)
        self.assertIn(b"to stderr\n", err)
        self.assertEqual(b"to stdout\n", self.log(folder, 0, "stdout.log"))

    def test_streams_chosen_by_rank(self):
        folder = self.bed.path("logs")
        out, _ = self.run_script(TALK, "--nproc_per_node", 2, "--redirects", "0:1", "--tee", "1:1", "--log_dir", folder)
        self.assertEqual([b"[default1]:to stdout"], out.splitlines())
        self.assertEqual(b"to stdout\n", self.log(folder, 0, "stdout.log"))

    def test_flood_into_files_is_lossless(self):
        folder = self.bed.path("logs")
        self.run_script(FLOOD, "--redirects", 3, "--log_dir", folder)
        for name in ("stdout.log", "stderr.log"):
            self.assertEqual(FLOOD_DIGEST, hashlib.sha256(self.log(folder, 0, name)).hexdigest(), name)

    def test_flood_through_tee_is_lossless_in_files(self):
        folder = self.bed.path("logs")
        self.run_script(FLOOD, "--tee", 3, "--log_dir", folder)
        for name in ("stdout.log", "stderr.log"):
            self.assertEqual(FLOOD_DIGEST, hashlib.sha256(self.log(folder, 0, name)).hexdigest(), name)

    def test_flood_inherited_is_lossless(self):
        out, err = self.run_script(FLOOD)
        self.assertEqual(FLOOD_DIGEST, hashlib.sha256(out).hexdigest())
        self.assertEqual(FLOOD_DIGEST, hashlib.sha256(err).hexdigest())

    def test_partial_lines_stay_whole(self):
        """A line that comes in pieces gets one prefix; carriage returns stay inside their line."""
        script = ("import os\nos.write(1, b'a')\nos.write(1, b'b\\rc\\n')\nos.write(1, b'last')\n")
        out, _ = self.run_script(script, "--tee", 1, "--log_dir", self.bed.path("logs"))
        self.assertEqual(b"[default0]:ab\rc\n[default0]:last\n", out)

    def test_lines_in_pieces_stay_whole_without_prefixes(self):
        pieces = """import os
for _ in range(300):
    os.write(2, b"err ")
    os.sched_yield()
    os.write(2, os.environ["RANK"].encode() + b" end\\n")
"""
        script = self.bed.write("pieces.py", pieces)
        agent = self.bed.run("agent", ["--nproc_per_node", 3, script])
        self.assert_status(0, agent)
        lines = [line for line in agent.text().splitlines() if not line.startswith("ddprun: ")]
        self.assertEqual({f"err {rank} end" for rank in range(3)}, set(lines))
        self.assertEqual(900, len(lines))

    def test_own_prefix(self):
        self.bed.environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "<${role_name}|${rank}|${local_rank}|${foo}> "
        out, _ = self.run_script(TALK, "--tee", 1, "--log_dir", self.bed.path("logs"))
        self.assertEqual(b"<default|0|0|${foo}> to stdout\n", out)

    def test_prefix_option(self):
        out, _ = self.run_script(TALK, "--prefix_output", "--prefix_template", "${host}/${group_rank}/${rank} ")
        self.assertEqual(f"{socket.gethostname()}/0/0 to stdout\n".encode(), out)

    def test_lines_that_all_say_are_shown_once(self):
        for rank in (1, 2):
            os.mkfifo(self.bed.path(f"here{rank}"))
            os.mkfifo(self.bed.path(f"go{rank}"))
        script = ALIKE.replace("FOLDER", self.bed.path(""))
        # One line, or two where a worker was held up for 200 ms; on a busy machine perhaps both others, but not each time.
        for _ in range(5):
            out, _ = self.run_script(script, "--nproc_per_node", 3, "--collapse_output")
            lines = out.decode().splitlines()
            for own in ("[default0]:rank 0", "[default1]:rank 1", "[default2]:rank 2"):
                self.assertIn(own, lines)
            said = [line for line in lines if line.endswith("]:training")]
            if len(said) < 3:
                break
        self.assertLess(len(said), 3, lines)
        self.assertIn(said[0], ("[default0-2]:training", "[default0-1]:training", "[default0,2]:training",
                                "[default1-2]:training", "[default0]:training", "[default1]:training",
                                "[default2]:training"))
        # Without the option each says it for itself.
        out, _ = self.run_script(script, "--nproc_per_node", 3, "--prefix_output")
        self.assertEqual(3, sum(line.endswith("]:training") for line in out.decode().splitlines()))

    def test_restarts_keep_their_logs(self):
        folder = self.bed.path("logs")
        script = ("import os, sys\nn = os.environ['TORCHELASTIC_RESTART_COUNT']\nprint('attempt', n)\n"
                  "sys.exit(0 if n == '1' else 4)\n")
        self.run_script(script, "--max_restarts", 1, "--redirects", 1, "--log_dir", folder)
        logs = sorted(glob.glob(os.path.join(folder, "*", "attempt_*", "0", "stdout.log")))
        self.assertEqual([b"attempt 0\n", b"attempt 1\n"], [self.read(path) for path in logs])


if __name__ == "__main__":
    unittest.main(verbosity=2)
