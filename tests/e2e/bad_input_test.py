#!/usr/bin/env python3
"""What can't be run ends within two seconds with one clear message, and never with a stack."""

import os
import shutil
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402

BOUND = 2 * SLOW


class RefusalTestCase(BedTestCase):
    def refused(self, arguments, statuses, *words, env=None, prefix=()):
        """Runs it; checks status, time and that stderr has the words and little else."""
        started = time.monotonic()
        result = subprocess.run(
            [*prefix, DDPRUN, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env={**self.bed.environment, **(env or {})}, cwd=self.bed.folder, timeout=10 * BOUND, check=False)
        took = time.monotonic() - started
        self.assertIn(result.returncode, statuses, result.stderr)
        self.assertLess(took, BOUND)
        for word in words:
            self.assertIn(word, result.stderr)
        for noise in ("Traceback", "terminate called", "absl::", "grpc_", "DDPRUN_CHECK", "Aborted"):
            self.assertNotIn(noise, result.stderr)
        self.assertLessEqual(len(result.stderr.strip().splitlines()), 6, result.stderr)
        self.assertGreater(len(result.stderr.strip()), 0)
        return result
        return result

    def script(self, text="print('ran')\n", mode=0o644):
        return self.bed.write("script.py", text, mode)


class BadInput(RefusalTestCase):
    def test_good_input_is_not_refused(self):
        result = subprocess.run([DDPRUN, self.script()], env=self.bed.environment, capture_output=True, text=True,
                                timeout=10 * BOUND, check=False)
        self.assertEqual((0, "ran\n"), (result.returncode, result.stdout), result.stderr)

    def test_unknown_option(self):
        self.refused(["--bogus", self.script()], [2], "--bogus")

    def test_a_binding_is_refused_in_words(self):
        self.refused(["--numa_binding", "node", self.script()], [1], "there are 0 GPUs")

    def test_no_script(self):
        self.refused([], [2])
        self.refused(["--nproc_per_node", 2], [2])

    def test_missing_script(self):
        self.refused(["no_such_script.py"], [1, 2], "no_such_script.py")

    def test_a_report_that_cant_be_written_is_refused_at_once(self):
        impossible = self.script() + "/below/report.json"
        self.refused(["--report_file", impossible, self.script()], [1], "--report_file", "Not a directory")
        done = subprocess.run([DDPRUN, "--report_file", self.bed.path("new/folder/report.json"), self.script()],
                              env=self.bed.environment, capture_output=True, timeout=10 * BOUND, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(os.path.exists(self.bed.path("new/folder/report.json")), "negative control: its folder is made")

    @unittest.skipIf(os.geteuid() != 0 or shutil.which("setpriv") is None, "only root can be another user, whom limits bind")
    def test_a_limit_on_processes_is_told_as_one(self):
        """gRPC goes on without its threads, and says nothing; then nobody answers."""
        os.chmod(self.bed.folder, 0o755)
        limited = ["setpriv", "--reuid", "64999", "--clear-groups", "bash", "-c", 'ulimit -u 14; exec "$@"', "bash"]
        reachable = subprocess.run([*limited[:4], "test", "-x", DDPRUN], check=False).returncode == 0
        if not reachable:
            self.skipTest("another user can't run this build")
        job = ["--nnodes", 1, "--rdzv_endpoint", "127.0.0.1:0", "--no_python", "/bin/true"]
        self.refused(job, [1], "ulimit -u", prefix=limited)

    def test_missing_program(self):
        self.refused(["--no_python", "no-such-program"], [1], "no-such-program")

    def test_directory_as_script(self):
        os.mkdir(self.bed.path("folder"))
        self.refused(["--no_python", self.bed.path("folder")], [1], "folder")

    def test_script_without_read_permission(self):
        path = self.script(mode=0o000)
        os.chmod(self.bed.folder, 0o755)
        prefix = ()
        if os.geteuid() == 0:
            prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            if subprocess.run([*prefix, "test", "-x", DDPRUN], check=False).returncode != 0:
                self.skipTest(f"nobody can't execute {DDPRUN}: a folder above is closed to others")
        self.refused([path], [1, 2], path, prefix=prefix)

    def test_numbers(self):
        script = self.script()
        for value in ("0", "-1", "foo"):
            self.refused(["--nproc_per_node", value, script], [1, 2], "nproc", value)
        for value in ("3:2", "0", "1:2:3", "a", "0:2"):
            self.refused(["--nnodes", value, script], [1, 2], "nnodes", value)
        self.refused(["--max_restarts", "x", script], [2], "max_restarts", "x")
        self.refused(["--max_restarts", "-1", script], [1, 2], "max_restarts")

    def test_malformed_endpoints(self):
        script = self.script()
        for value in ("localhost:99999", "a b:1", "localhost:port", "[::1:29400"):
            self.refused(["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", value, script], [1, 2], value)

    def test_malformed_configuration(self):
        script = self.script()
        for value in ("a", "=1", "join_timeout=x", "lease=-1"):
            self.refused(["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:1", "--rdzv_conf", value,
                          script], [1, 2], "rdzv_conf")

    def test_unsupported_backend(self):
        self.refused(["--rdzv_backend", "zeus", "--rdzv_endpoint", "localhost:1", self.script()], [1, 2], "zeus",
                     "static, c10d or etcd")

    def test_standalone_on_two_nodes(self):
        self.refused(["--standalone", "--nnodes", 2, self.script()], [1, 2], "standalone", "nnodes")

    def test_environment_fallback_is_checked_too(self):
        self.refused([self.script()], [1, 2], "PET_NNODES", "3:2", env={"PET_NNODES": "3:2"})

    def test_log_dir_is_a_file(self):
        path = self.bed.write("file", "")
        result = self.refused(["--log_dir", path, "--nproc_per_node", 2, "--max_restarts", 3, "--redirects", 3,
                               self.script()], [1],
                              "ddprun: error: --log_dir ", path)
        self.assertEqual(1, len(result.stderr.splitlines()), result.stderr)

    def test_service_port_in_use(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            self.refused(["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}",
                          "--rdzv_conf", "is_host=1", self.script()], [1], str(port))

    def test_master_port_in_use(self):
        with socket.socket() as holder:
            holder.bind(("0.0.0.0", 0))
            holder.listen()
            port = holder.getsockname()[1]
            self.refused(["--nnodes", 1, "--master_addr", "127.0.0.1", "--master_port", port, self.script()], [1],
                         str(port))


class ForeignJobs(RefusalTestCase):
    """A second job, or a second claim, at an endpoint that is taken."""

    def waiting_agent(self, *options):
        """An agent that hosts the service and waits for a second node."""
        agent = self.bed.agent("holder", ["--nnodes", 2, *options])
        self.bed.event("node_joined", alive=[agent])
        return agent

    def test_foreign_job(self):
        port = free_port()
        endpoint = ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"]
        self.waiting_agent(*endpoint, "--rdzv_id", "mine", "--rdzv_conf", "is_host=1")
        self.refused(["--nnodes", 2, *endpoint, "--rdzv_id", "yours", "--rdzv_conf", "is_host=0", self.script()], [1],
                     "mine")
        self.refused(["--nnodes", 2, *endpoint, "--rdzv_id", "mine", "--rdzv_conf", "is_host=0", self.script()], [1])

    def test_two_static_claims_of_rank_0(self):
        port = free_port()
        static = ["--node_rank", 0, "--master_addr", "127.0.0.1", "--master_port", port]
        self.waiting_agent(*static)
        self.refused(["--nnodes", 2, *static, self.script()], [1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
