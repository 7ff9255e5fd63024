#!/usr/bin/env python3
"""An endpoint that isn't there yet: said at once, tried again until join_timeout."""

import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, BedTestCase, free_port, read_until  # noqa: E402

BOUND = 2 * SLOW


class Endpoint(BedTestCase):
    def client(self, endpoint, join_timeout):
        return self.bed.run(
            "client", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_conf",
                       f"is_host=0,join_timeout={join_timeout}", "--event_log", self.bed.events.path,
                       *self.worker()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def worker(self):
        return [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "worker.py"),
                self.bed.journal.path, "wait"]

    def check_message_then_timeout(self, endpoint, word):
        started = time.monotonic()
        client = self.client(endpoint, 3)
        read_until(client.stdout, word.encode(), BOUND)
        self.assertLess(time.monotonic() - started, BOUND)
        self.assert_status(1, client, 3 + BOUND)
        self.assertGreater(time.monotonic() - started, 2.5)

    def test_name_that_does_not_resolve(self):
        self.check_message_then_timeout("no-such-host.invalid:29400", "no-such-host.invalid")

    def test_nobody_answers(self):
        port = free_port()
        self.check_message_then_timeout(f"127.0.0.1:{port}", str(port))

    def test_the_service_comes_later(self):
        port = free_port()
        client = self.client(f"127.0.0.1:{port}", 60)
        read_until(client.stdout, str(port).encode(), BOUND)
        host = self.bed.run("host", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}",
                                     "--rdzv_conf", "is_host=1", "--event_log", self.bed.events.path, *self.worker()])
        self.bed.finish(self.bed.workers(1, 2, alive=[client, host]))
        self.assert_status(0, client)
        self.assert_status(0, host)


if __name__ == "__main__":
    unittest.main(verbosity=2)
