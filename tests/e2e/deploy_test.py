#!/usr/bin/env python3
"""What monitors and machines get as files: alert rules for Prometheus, and a unit for systemd whose command serves."""

import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import CACHE, DDPRUN, ROOT, BedTestCase, free_port  # noqa: E402

ALERTS = os.path.join(ROOT, "docs", "grafana", "alerts.yml")
PROMTOOL = shutil.which("promtool", path=os.path.join(CACHE, "promtool")) or shutil.which("promtool")
UNIT = os.path.join(ROOT, "deploy", "systemd", "ddprun-rendezvous.service")


class Systemd(BedTestCase):
    def unit(self):
        with open(UNIT, encoding="utf-8") as source:
            return source.read()

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
    def test_systemd_understands_it(self):
        path = self.bed.write("ddprun-rendezvous.service", self.unit().replace("/usr/bin/ddprun", DDPRUN))
        checked = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
        said = [line for line in checked.stderr.splitlines() if "ddprun" in line]
        self.assertEqual((0, []), (checked.returncode, said), checked.stderr)

    def test_its_command_serves(self):
        command = re.search(r"^ExecStart=/usr/bin/ddprun (.*)$", self.unit(), re.MULTILINE)[1]
        port = free_port()
        folder = self.bed.path("state")
        os.mkdir(folder)
        token = self.bed.write("token", "secret\n", mode=0o400)
        for name, value in (("0.0.0.0:29400", f"127.0.0.1:{port}"), ("${CREDENTIALS_DIRECTORY}", self.bed.folder),
                            ("${STATE_DIRECTORY}", folder)):
            self.assertIn(name, command)
            command = command.replace(name, value)
        service = self.bed.run("service", command.split())
        self.bed.wait(lambda: "rendezvous service on" in service.text(), "the service", alive=[service])
        self.assertNotIn("warning", service.text())
        script = self.bed.write("train.py", "print('ran')\n")
        agent = self.bed.run("agent", ["--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_conf", "is_host=0",
                                       "--token_file", token, script])
        self.assert_status(0, agent)
        self.assertIn("ran\n", agent.text())


class Alerts(unittest.TestCase):
    """docs/grafana/alerts.yml."""

    def test_they_ask_for_what_there_is(self):
        with open(ALERTS, encoding="utf-8") as source:
            expressions = re.findall(r"^ +expr: (.*)$", source.read(), re.MULTILINE)
        with open(os.path.join(ROOT, "docs", "MONITORING.md"), encoding="utf-8") as source:
            page = source.read()
        self.assertGreater(len(expressions), 5)
        for expression in expressions:
            for name in re.findall(r"\bddprun_\w+", expression):
                self.assertIn(f"`{name}`", page)

    @unittest.skipUnless(PROMTOOL, "there is no promtool")
    def test_prometheus_understands_them(self):
        checked = subprocess.run([PROMTOOL, "check", "rules", ALERTS], capture_output=True, text=True, check=False)
        self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
