#!/usr/bin/env python3
"""What training says of itself: the JSON lines, the event files as TensorBoard reads them, the console."""

import glob
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import CACHE, DDPRUN  # noqa: E402

PROBE = os.environ["DDPRUN_METRICS_PROBE"]
TENSORBOARD_PYTHON = os.path.join(CACHE, "tensorboard", "bin", "python3")
READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "read_events.py")
MISSING = None if os.access(TENSORBOARD_PYTHON, os.X_OK) else "no TensorBoard: 'scripts/setup' installs it"

FIGURES = {"loss", "learning_rate", "samples_per_second", "step_seconds", "data_seconds", "gradient_norm",
           "host_memory_bytes", "communication_seconds", "communication_overlap"}


class MetricsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-metrics-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "run")

    def command(self, first, last, every, *more):
        return [DDPRUN, "--standalone", "--nproc_per_node", "2", "--no_python", PROBE, self.folder, str(first), str(last),
                str(every), *more]

    def train(self, *arguments, succeeds=True):
        """Returns the program's output."""
        result = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                check=False)
        self.assertEqual(result.returncode == 0, succeeds, result.stdout)
        return result.stdout

    def lines(self, name="metrics.jsonl"):
        with open(os.path.join(self.folder, name), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def records(self):
        return [line for line in self.lines() if "loss" in line]

    def events(self):
        result = subprocess.run([TENSORBOARD_PYTHON, READER, os.path.join(self.folder, "tensorboard")],
                                capture_output=True, text=True, check=True)
        return json.loads(result.stdout)

    def test_each_rank_reports_its_own_figures_to_ddprun(self):
        """In its page of progress (docs/PROGRESS.md), for which a file stands here; the last record's."""
        pages = [f"{self.folder}.page.{rank}" for rank in range(2)]
        for page in pages:
            with open(page, "wb") as sink:
                sink.write(b"DDPRUNPG" + struct.pack("Q", 1) + bytes(4080))
        wrapper = ["bash", "-c", 'export DDPRUN_PROGRESS=$0.page.$LOCAL_RANK; exec "$@"', self.folder]
        command = self.command(1, 25, 10)
        at = command.index(PROBE)
        result = subprocess.run([*command[:at], *wrapper, *command[at:]], capture_output=True, text=True, check=False)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        told = []
        for page in pages:
            with open(page, "rb") as source:
                told.append(struct.unpack_from("ddQ", source.read(), 448))
        self.assertEqual([(23.0, 3), (33.0, 3)], [(loss, bits) for loss, _, bits in told])
        for _, rate, _ in told:
            self.assertGreater(rate, 0)

    def test_records_tell_of_both_ranks(self):
        self.train(1, 25, 10)
        records = self.records()
        # At each tenth step and at the last; the mean of the steps since, and of both ranks.
        self.assertEqual([(r["step"], r["loss"]) for r in records], [(10, 10.5), (20, 20.5), (25, 28.0)])
        for record in records:
            self.assertEqual(set(record) - {"step", "time", "generation"}, FIGURES)
            self.assertEqual(record["generation"], 1)
            self.assertEqual(record["learning_rate"], 0.125)
            self.assertEqual(record["gradient_norm"], 2.5)
            self.assertAlmostEqual(record["samples_per_second"] * record["step_seconds"], 8, places=6)
            self.assertAlmostEqual(record["data_seconds"], 1e-6)
            self.assertGreater(record["host_memory_bytes"], 50e6)
            self.assertGreater(record["communication_seconds"], 0)
            self.assertGreaterEqual(record["communication_overlap"], 0)
            self.assertLessEqual(record["communication_overlap"], 1)

    def test_rank_0_alone_needs_no_communication(self):
        self.train(1, 10, 10, "alone")
        self.assertEqual([r["loss"] for r in self.records()], [5.5])

    @unittest.skipIf(MISSING, MISSING)
    def test_tensorboard_reads_what_the_lines_say(self):
        self.train(1, 30, 10)
        events = self.events()
        self.assertEqual(set(events), FIGURES | {"evaluation/accuracy"})
        for name in FIGURES:
            self.assertEqual([step for step, _ in events[name]], [10, 20, 30])
            for (_, value), record in zip(events[name], self.records()):
                self.assertAlmostEqual(value, record[name], delta=1e-6 * abs(record[name]))
        self.assertEqual(events["evaluation/accuracy"], [[step, 0.5] for step in range(1, 31)])

    @unittest.skipIf(MISSING, MISSING)
    def test_a_wrong_byte_is_found_by_tensorboard(self):
        """Negative control of the checksums: with a wrong one the reader takes nothing."""
        self.train(1, 20, 10)
        path, = glob.glob(os.path.join(self.folder, "tensorboard", "*"))
        with open(path, "r+b") as file:
            data = file.read()
            at = data.index(b"learning_rate")
            file.seek(at)
            file.write(b"Learning_rate")
        self.assertNotIn("loss", self.events())

    @unittest.skipIf(MISSING, MISSING)
    def test_a_killed_run_loses_nothing_and_goes_on_without_doubles(self):
        self.train(1, 17, 1, "die", succeeds=False)
        self.assertEqual([r["step"] for r in self.records()], list(range(1, 18)))
        self.assertEqual([step for step, _ in self.events()["loss"]], list(range(1, 18)))
        self.train(11, 20, 1)  # the last checkpoint was after step 10
        self.assertEqual([r["step"] for r in self.records()], list(range(1, 21)))
        self.assertEqual([step for step, _ in self.events()["loss"]], list(range(1, 21)))
        self.assertEqual(len(glob.glob(os.path.join(self.folder, "tensorboard", "*"))), 2)

    def test_a_run_from_the_beginning_keeps_an_older_ones_lines(self):
        self.train(1, 5, 1)
        self.train(1, 3, 1)
        self.assertEqual([r["step"] for r in self.records()], [1, 2, 3])
        self.assertEqual(len([line for line in self.lines("metrics.1.jsonl") if "loss" in line]), 5)

    def test_a_log_has_the_banner_and_lines(self):
        output = self.train(1, 20, 10)
        for text in ("probe\n  processes: 2\n  devices: 2 × cpu\n  backend: shm\n", "steps per epoch: 3,687\n",
                     "step 10/20 (50%)  loss 10.5  lr 0.125", "step 20/20 (100%)  loss 20.5", " 0:00 left\n"):
            self.assertIn(text, output)
        self.assertNotIn("\r", output)

    def test_a_terminal_has_a_bar(self):
        master, slave = pty.openpty()
        subprocess.run([PROBE, self.folder, "1", "20", "10"], stderr=slave, check=True)
        os.close(slave)
        output = b""
        try:
            while chunk := os.read(master, 1 << 16):
                output += chunk
        except OSError:  # EIO: nobody holds the other side any more
            pass
        os.close(master)
        self.assertIn(b"\r100% [====================] 20/20", output)
        self.assertTrue(output.endswith(b"\x1b[K\r\n"), output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
