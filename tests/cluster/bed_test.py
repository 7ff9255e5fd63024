#!/usr/bin/env python3
"""The test bed itself: its hosts reach each other, its faults are faults, its checks find what they look for."""

import os
import subprocess
import sys
import tempfile

import job
from bed import Bed
from timeline import TimelineError, leftovers

# Connects to argv[1]:7000 and says so, or waits until it is killed by the bound.
CONNECT = "import socket, sys\nsocket.create_connection((sys.argv[1], 7000), 0.5).recv(2)\n"
LISTEN = "import os, socket\ns = socket.socket()\ns.bind(('', 7000))\ns.listen()\nprint(os.uname().nodename, flush=True)\n" \
         "while True: s.accept()[0].send(b'hi')\n"


class TestBed(job.ClusterTestCase):
    def connects(self, source, target):
        return subprocess.run(self.cluster.command(source, [sys.executable, "-c", CONNECT, f"n{target}"]),
                              capture_output=True, check=False).returncode == 0

    def listen(self, host):
        listener = subprocess.Popen(self.cluster.command(host, [sys.executable, "-c", LISTEN]), stdout=subprocess.PIPE)
        self.addCleanup(listener.wait)
        self.addCleanup(listener.kill)
        self.addCleanup(listener.stdout.close)
        self.assertEqual(f"n{host}\n".encode(), listener.stdout.readline())

    def test_hosts_and_faults(self):
        self.listen(2)
        self.assertTrue(self.connects(1, 2))
        self.assertTrue(self.connects(3, 2))
        self.cluster.cut_one_way(1, 2)
        self.assertFalse(self.connects(1, 2))
        self.assertTrue(self.connects(3, 2))
        self.cluster.heal()
        self.assertTrue(self.connects(1, 2))
        self.cluster.pull_cable(2)
        self.assertFalse(self.connects(3, 2))
        self.cluster.heal()
        self.assertTrue(self.connects(3, 2))

    def test_orphans_are_found(self):
        bed = Bed()
        self.addCleanup(bed.close)
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            # Without an exec: in the middle of one a process shows no environment, and so no tag.
            command = ["setsid", "sh", "-c", f"(read line <'{pipe}') &"]
            subprocess.run(command, env={**os.environ, **bed.environment}, check=True)
            self.check_orphan(bed)

    def check_orphan(self, bed):
        self.assertEqual(1, len(leftovers(bed.tag, 0.05)))
        self.assertEqual(1, len(bed.stop()), "it is reported once, and killed")
        self.assertEqual({}, leftovers(bed.tag, 1))

    def test_what_does_not_come_is_said(self):
        with self.assertRaisesRegex(TimelineError, "event nothing"):
            self.bed.event("nothing", timeout=0.05)
        short = self.bed.run("short", ["--version"])
        with self.assertRaisesRegex(TimelineError, "short ended with 0"):
            self.bed.event("nothing", alive=[short])


if __name__ == "__main__":
    job.main()
