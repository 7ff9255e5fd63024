#!/usr/bin/env python3
"""docs/event_log.schema.json against the event logs of real jobs, and against the names in the source."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, free_port  # noqa: E402
from preempt_test import BOUND, PREEMPTED, PreemptTestCase  # noqa: E402

REJOIN_WORKER = os.path.join(os.path.dirname(DDPRUN), "..", "tests", "rejoin_worker")
SCHEMA = os.path.join(ROOT, "docs", "event_log.schema.json")
# How the sources name an event that they write, or one of two.
WRITES = re.compile(
    r'(?:(?:AddNote|RecordFact|hooks_\.record|hooks_\.write|\bwrite_|\bWrite)\(\s*'
    r'(?:[a-z_]+(?:->|\.)?(?:Now\(\))?[a-z_()>.-]*,\s*)?'
    r'|WarmNote\{|Note note\{\.event = )(?:[a-z_.()]+ \? "([a-z_]+)"\s*: )?"([a-z_]+)"')
# Debian's python3-jsonschema is for Debian's python3, which need not be the one that runs this.
PYTHONS = [sys.executable, "/usr/bin/python3"]
CHECK = """
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
by_event = {}
for name, part in schema["$defs"].items():
    if "event" in part.get("properties", {}) and name != "line":
        by_event.setdefault(part["properties"]["event"]["const"], []).append(name)
for line in map(json.loads, sys.stdin):
    names = by_event.get(line["event"], [])
    checks = [jsonschema.Draft202012Validator({**schema, "oneOf": [{"$ref": "#/$defs/" + name}]}) for name in names]
    if not any(check.is_valid(line) for check in checks):
        why = [error.message for check in checks for part in check.iter_errors(line) for error in part.context]
        print(json.dumps(line), why[:3] or "unknown event")
"""


def python_with_jsonschema():
    for python in PYTHONS:
        command = [python, "-c", "import jsonschema; jsonschema.Draft202012Validator"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return None


PYTHON = python_with_jsonschema()


@unittest.skipIf(PYTHON is None, "no Python here has jsonschema (python3-jsonschema)")
class Lines(PreemptTestCase):
    def wrong(self, lines):
        result = subprocess.run([PYTHON, "-c", CHECK, SCHEMA], input="".join(json.dumps(line) + "\n" for line in lines),
                                capture_output=True, text=True, check=False, timeout=60 * SLOW)
        self.assertEqual("", result.stderr)
        return result.stdout

    def assert_lines(self, *events):
        """All lines are as the schema says, and these events are among them."""
        self.bed.follower.refresh()
        self.assertEqual(set(), set(events) - {line["event"] for line in self.bed.events.lines})
        self.assertEqual("", self.wrong(self.bed.events.lines))

    def run_ddprun(self, *arguments):
        return subprocess.run([DDPRUN, *arguments, "--rdzv_endpoint", f"127.0.0.1:{self.endpoint}"], env=self.bed.environment,
                              capture_output=True, text=True, check=False, timeout=60 * SLOW).stdout

    def test_of_a_job_with_failures_and_a_drain(self):
        host, other = self.two("1:2", "--max_restarts", 3, "--on_stopped", "restart", preempts=())
        self.wait_for_step(20, (host, other))
        self.bed.signal_workers(self.lines("worker", rank=2), signal.SIGKILL)
        self.wait_for_step(20, (host, other), generation=2)
        self.bed.signal_workers(self.lines("worker", rank=3, generation=2), signal.SIGSTOP)
        self.wait_for_step(20, (host, other), generation=3)
        self.run_ddprun("drain", f"{os.uname().nodename}#{other.pid}")
        self.assert_status(PREEMPTED, other, BOUND)
        again = self.another("again")
        self.assert_status(1, again, BOUND)
        self.run_ddprun("drain", "--undo", f"{os.uname().nodename}#{other.pid}")
        third = self.another("third")
        self.bed.event("generation", generation="5", alive=(host, third))
        self.bed.event("started", generation="5", alive=(host, third))
        third.signal(signal.SIGKILL)
        self.bed.event("node_lost", alive=[host])
        self.bed.event("started", generation="6", alive=[host])
        self.run_ddprun("stop")
        self.assert_status(1, host, BOUND)
        self.assert_lines("agent_start", "assignment", "worker_started", "worker_exit", "worker_suspended", "hang",
                          "stop_begin", "group_empty", "drain", "undrain", "node_joined", "node_refused", "node_left",
                          "node_lost", "generation", "started", "round_closing", "round_closed", "stop_prepared",
                          "stop_committed", "verdict", "agent_exit")

    def test_of_workers_that_rejoin(self):
        agent = self.bed.run("ddprun", ["--nproc_per_node", 3, "--max_restarts", 1, "--event_log", self.bed.events.path,
                                        "--no_python", REJOIN_WORKER, self.bed.journal.path, "stubborn=1"])
        first = self.bed.workers(1, 3, alive=[agent])
        self.bed.event("worker_can_rejoin", count=3, alive=[agent])
        self.bed.signal_workers(first[2:], signal.SIGKILL)
        self.bed.finish(self.bed.workers(2, 3, alive=[agent]))
        self.assert_status(0, agent, BOUND)
        self.assert_lines("worker_can_rejoin", "worker_kept", "let_go_late")

    def test_events_are_lines_of_it_too(self):
        agents = self.two("2", preempts=())
        self.wait_for_step(5, agents)
        lines = [json.loads(line) for line in self.run_ddprun("events", "--json").splitlines()]
        self.assertEqual(["node_joined", "node_joined", "generation", "started"], [line["event"] for line in lines])
        self.assertEqual("", self.wrong(lines))

    def test_twin_it_finds_what_is_wrong(self):
        line = {"t": 1.5, "wall": 2.5, "pid": 7, "who": "service", "event": "started", "run_id": "job7", "generation": "1"}
        self.assertEqual("", self.wrong([line]))
        for wrong in ({**line, "event": "ended"}, {**line, "generation": 1}, {**line, "more": "1"}, {**line, "who": "agent:a"},
                      {name: value for name, value in line.items() if name != "t"}):
            self.assertNotEqual("", self.wrong([wrong]), wrong)


class Names(unittest.TestCase):
    def test_every_event_of_the_source_is_in_the_schema_and_in_the_page(self):
        found = set()
        for folder in ("launcher", "rendezvous", "tools"):
            for path in glob.glob(os.path.join(ROOT, folder, "**", "*.cc"), recursive=True):
                if path.endswith("elastic_events.cc"):  # torchrun's
                    continue
                with open(path, encoding="utf-8") as source:
                    found |= {name for names in WRITES.findall(source.read()) for name in names if name}
        with open(SCHEMA, encoding="utf-8") as source:
            parts = json.load(source)["$defs"].values()
        schema = {part["properties"]["event"].get("const") for part in parts} - {None}
        self.assertEqual((set(), set()), (found - schema, schema - found))
        with open(os.path.join(ROOT, "docs", "EVENTS.md"), encoding="utf-8") as source:
            page = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"(?m)^\| ([a-z_, `]+) \|", source.read()))))
        self.assertEqual((set(), {"event"}), (found - page, page - found), "event: the table's own head")


if __name__ == "__main__":
    unittest.main(verbosity=2)
