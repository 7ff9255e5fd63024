#!/usr/bin/env python3
"""A full GPU and an index out of bounds: how jobs end, what the report says, what is left."""

import ctypes
import json
import os
import re
import signal
import time
import unittest

from gpu_bed import DEVICE, FAKE_DRIVER, ON_GPU, figure, within
from cards import CardCase, number

NVML = os.path.join("" if ON_GPU else FAKE_DRIVER, "libnvidia-ml.so.1")
XID = ctypes.c_ulonglong(8)  # nvmlEventTypeXidCriticalError, of nvml.h
MARGIN_MIB = 64  # what the driver may keep, or another look may round
SECONDS_TO_FREE = 10  # that a context's end may take, of a GPU that others may use


class XidData(ctypes.Structure):
    """nvmlEventData_t of nvml.h."""
    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("xid", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class XidEvents:
    """What the driver reports about the first GPU from now on; nothing where its library, as that of a twin, has no events."""

    def __init__(self):
        self.nvml, self.events = ctypes.CDLL(NVML), ctypes.c_void_p()
        if not hasattr(self.nvml, "nvmlEventSetWait_v2"):
            self.nvml = None
            return
        device = ctypes.c_void_p()
        for status in (self.nvml.nvmlInit_v2(), self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
                       self.nvml.nvmlEventSetCreate(ctypes.byref(self.events)),
                       self.nvml.nvmlDeviceRegisterEvents(device, XID, self.events)):
            if status != 0:
                print(f"no events of Xid: NVML's error {status}", flush=True)
                self.nvml = None
                return

    def told(self):
        """The numbers, so far and in the next second."""
        numbers, data = [], XidData()
        while self.nvml is not None and self.nvml.nvmlEventSetWait_v2(self.events, ctypes.byref(data), 1000) == 0:
            numbers.append(data.xid)
        return numbers


class Failures(CardCase):
    def setUp(self):
        super().setUp()
        self.used_before = self.used()
        self.report = self.bed.path("report.json")

    def used(self):
        return number(self.card("memory.used")["memory.used"])

    def run_kinds(self, *kinds, status):
        agent = self.launch(1, ("--redirects", 2, "--log_dir", self.bed.path("logs"), "--report_file", self.report,
                                "--max_restarts", len(kinds) - 1, "--restart_backoff", 0),
                            "fail.py", "--device", DEVICE, "--journal", self.bed.journal.path, *kinds)
        self.finish_job(agent, status)
        self.bed.follower.refresh()
        with open(self.report, encoding="utf-8") as source:
            return json.load(source), agent.text()

    def assert_cleaned(self):
        self.assertTrue(within(SECONDS_TO_FREE, lambda: self.used() <= self.used_before + MARGIN_MIB),
                        f"{self.used()} MiB are in use, {self.used_before} before the job")

    def root_cause(self, kind, rule):
        """The report's, of a job of one worker that fails so."""
        report, text = self.run_kinds(kind, status=1)
        cause, = report["root_causes"]
        self.assertEqual(("failed", 1, 0), (report["outcome"], report["status"], cause["rank"]))
        # After an assert in a kernel torch may abort when it cleans up, which is its own affair.
        ends = ((1, None), (None, signal.SIGABRT)) if kind == "assert" else ((1, None),)
        self.assertIn((cause["exit_code"], cause["signal"]), ends)
        self.assertEqual(rule, (cause["advice"] or {}).get("rule"), text)
        self.assertIn(f"\n  next      : {cause['advice']['next']}\n", text)
        figure(f"{kind}_report_names_an_xid", len(re.findall(r"(?i)\bxid\b", text)), "")
        self.assert_cleaned()
        return cause, text

    def test_memory(self):
        """Can fail: the sizes are the card's, and nvidia-smi prints them, too."""
        cause, text = self.root_cause("memory", "cuda_out_of_memory")
        said = re.search(r"GPU 0 of this node \(([\d.]+) GiB\) had no room for another 8\.00 GiB", cause["advice"]["text"])
        self.assertIsNotNone(said, cause["advice"]["text"])
        total = number(self.card("memory.total")["memory.total"]) / 1024
        # CUDA leaves out what the driver keeps for itself, and torch rounds.
        self.assertTrue(0.97 * total <= float(said[1]) <= total + 0.01, f"{said[1]} of {total} GiB")
        self.assertIn("CUDA out of memory. Tried to allocate 8.00 GiB", cause["advice"]["line"])
        self.assertIn("OutOfMemoryError", text)

    def test_an_index_out_of_bounds(self):
        """The driver logs an Xid; ddprun has the worker's words alone. Can fail: no rule fits another error's words."""
        events = XidEvents()
        cause, text = self.root_cause("assert", "device_assert")
        numbers = events.told()
        print(f"Xid: {numbers}", flush=True)
        figure("assert_xid", numbers[0] if numbers else 0, "")
        self.assertIn("device-side assert triggered", cause["advice"]["line"])
        self.assertRegex(text, r"read_beyond|AcceleratorError|RuntimeError")

    def test_after_both_the_next_start_has_the_whole_card(self):
        """Can fail: what is free is asked by the third worker itself."""
        began = time.monotonic()
        report, _ = self.run_kinds("memory", "assert", "none", status=0)
        figure("two_failures_and_a_good_end", time.monotonic() - began, "s")
        self.assertEqual(0, report["status"])
        line, = self.bed.journal.find("computed")
        self.assertEqual((3, 0), (line["generation"], line["last"]))
        self.assertEqual([False, False, True], [event["exit_code"] == 0 for event in self.bed.events.find("worker_exit")])
        if ON_GPU:
            total = number(self.card("memory.total")["memory.total"])
            self.assertGreater(line["free"] / 2 ** 20, 0.97 * (total - self.used_before) - 1024)  # its own context
        self.assert_cleaned()


if __name__ == "__main__":
    unittest.main(verbosity=2)
