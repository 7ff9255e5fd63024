"""The load program with few agents: every phase completes, and what an agent and a generation cost in bytes doesn't grow
with the number of agents. No time is judged here."""

import json
import os
import subprocess
import tempfile
import unittest

_BIN = os.path.dirname(os.environ["DDPRUN_BIN"])
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
