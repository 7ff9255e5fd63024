"""The load program with few agents: every phase completes, and what an agent and a generation cost in bytes doesn't grow
with the number of agents. No time is judged here."""

import json
import os
import subprocess
import tempfile
import unittest

_BIN = os.path.dirname(os.environ["DDPRUN_BIN"])
# A figure of each bound, and one beyond it.
_BEYOND = {
    "formed": (("form", "assigned_after_last_connected", "max_ms"), 2001),
    "regrouped": (("frozen", "assigned_after_noticed", "max_ms"), 1001),
    "steady": (("steady", "percent_of_a_core"), 10.1),
    "resident": (("restart", "resident_peak_mb"), 301),
    "verdict": (("verdict", "told", "max_ms"), 1001),
    "verdict_memory": (("verdict", "memory_more_mb"), 101),
    "restart": (("restart", "back_after_kill", "max_ms"), 3001),
}
_PHASES = ("connect", "form", "steady", "killed", "frozen", "restart", "verdict")


def _run(agents):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        done = subprocess.run(
            [os.path.join(_BIN, "service_load_bench"), "--program", os.environ["DDPRUN_BIN"], "--agents", str(agents),
             "--steady", "1", "--lease", "1", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout.decode())
        with open(path, encoding="utf-8") as file:
            return json.load(file)[0]


def _judge(*reports):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(reports, file)
        file.flush()
        done = subprocess.run([os.path.join(_BIN, "service_load_bench"), "--judge", file.name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode()


def _report(**figures):
    """All figures within their bounds, but for those that are given by the names of their bounds."""
    report = {}
    paths = [path for path, _ in _BEYOND.values()] + [("killed", "assigned", "max_ms"), ("frozen", "resident_peak_mb")]
    for path in paths:
        _set(report, path, 1)
    for name, value in figures.items():
        _set(report, _BEYOND[name][0], value)
    return report


def _set(report, path, value):
    for key in path[:-1]:
        report = report.setdefault(key, {})
    report[path[-1]] = value


class Check(unittest.TestCase):
    def test_what_is_within_all_bounds_passes(self):
        self.assertEqual(_judge(_report()), (0, ""))

    def test_a_missed_bound_fails_by_its_name(self):
        for name, (_, value) in _BEYOND.items():
            status, text = _judge(_report(**{name: value}))
            self.assertEqual(status, 3, name)
            self.assertRegex(text, rf"^missed: {name}: [0-9.]+ .*\n$")

    def test_the_median_of_the_runs_counts(self):
        slow = _report(restart=9000)
        self.assertEqual(_judge(_report(), slow, _report())[0], 0)
        self.assertEqual(_judge(slow, _report(), slow)[0], 3)

    def test_a_figure_that_is_missing_is_beyond_its_bound(self):
        report = _report()
        del report["killed"]
        self.assertIn("missed: regrouped: inf", _judge(report)[1])


class ServiceLoad(unittest.TestCase):
    def test_bytes_of_an_agent_do_not_grow_with_the_job(self):
        few, many = _run(8), _run(64)
        for report in (few, many):
            self.assertEqual([phase for phase in _PHASES if phase not in report], [])
            self.assertEqual(report["restart"]["new_generations"], 0)
            self.assertEqual(report["steady"]["generations_ended"], 0)
        for phase in ("form", "killed"):
            for way in ("bytes_to_service_an_agent", "bytes_from_service_an_agent"):
                # Some probes more or less, and longer numbers: not eight times as many agents.
                self.assertLess(many[phase][way], 2 * few[phase][way] + 2048, (phase, way))


if __name__ == "__main__":
    unittest.main()
