#!/usr/bin/env python3
"""Jobs whose record is in etcd: any node can have the service, and the loss of the one that has it is survived."""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, BedTestCase, free_port  # noqa: E402
from etcd import EtcdCluster, etcd_is_there  # noqa: E402

MARKING_WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")


@unittest.skipUnless(etcd_is_there(), "there is no etcd here (Debian's etcd-server and etcd-client)")
class EtcdTestCase(BedTestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster()

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def setUp(self):
        super().setUp()
        self.run_id = f"etcd{self.bed.tag}"

    def options(self, *more, backend="etcd"):
        return ["--rdzv_backend", backend, "--rdzv_endpoint", self.etcd.endpoints, "--rdzv_id", self.run_id,
                "--local_addr", "127.0.0.1", *more]

    def start_nodes(self, count, *more, backend="etcd"):
        nodes = [self.bed.agent(f"node{index}", self.options("--nnodes", f"2:{count}", "--nproc_per_node", 1, *more,
                                                             backend=backend))
                 for index in range(count)]
        return nodes, self.bed.workers(1, count, alive=nodes)

    def serving(self, nodes, count=1):
        """The newest service's event, and its agent."""
        started = self.bed.event("service_started", count=count, alive=nodes)
        return started, next(node for node in nodes if node.pid == started["pid"])

    def assert_one_generation(self):
        self.bed.follower.refresh()
        self.assertEqual(["1"], [line["generation"] for line in self.bed.events.find("generation")])
        self.assertEqual([], self.bed.events.find("node_lost") + self.bed.events.find("round_closing"))

    def end(self, workers, nodes):
        self.bed.finish(workers)
        for node in nodes:
            self.assert_status(0, node)
        self.assertEqual([], [key for key in self.etcd.keys() if self.run_id in key], "a job that is over leaves nothing")


class Jobs(EtcdTestCase):
    def test_a_job_of_its_own_keys(self):
        nodes, workers = self.start_nodes(3)
        self.serving(nodes)
        prefix = f"/ddprun/{self.run_id}/"
        self.assertEqual([prefix + name for name in ("host", "leader", "record")],
                         [key for key in self.etcd.keys() if self.run_id in key])
        self.assert_one_generation()
        text = subprocess.run([DDPRUN, "status", "--rdzv_id", self.run_id], env=self.bed.environment, text=True,
                              capture_output=True, check=True, timeout=60 * SLOW).stdout
        self.assertIn(f"job {self.run_id}", text)
        self.assertIn("generation 1, restarts 0 of 0", text)
        self.end(workers, nodes)

    def test_torchruns_spelling_and_its_keys(self):
        nodes, workers = self.start_nodes(2, "--rdzv_conf", "etcd_prefix=/mine/,protocol=http", backend="etcd-v2")
        self.assertEqual({f"/mine/{self.run_id}/{name}" for name in ("host", "leader", "record")},
                         {key for key in self.etcd.keys() if self.run_id in key})
        self.end(workers, nodes)

    def test_a_worker_that_fails_restarts_all(self):
        nodes, workers = self.start_nodes(2, "--max_restarts", 1)
        os.kill(workers[0]["pid"], signal.SIGKILL)
        self.end(self.bed.workers(2, 2, alive=nodes), nodes)

    def test_nothing_there(self):
        agent = self.bed.run("alone", ["--rdzv_backend", "etcd", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                                       "--rdzv_conf", "read_timeout=6", "--nnodes", 2, MARKING_WORKER])
        self.assert_status(1, agent)
        self.assertRegex(agent.text(), r"etcd at 127\.0\.0\.1:\d+ does not answer; 127\.0\.0\.1:\d+: .*Connection refused")


class Takeover(EtcdTestCase):
    def test_of_a_service_that_was_killed(self):
        nodes, workers = self.start_nodes(3)
        for times in (1, 2, 3):
            started, _ = self.serving(nodes, times)
            os.kill(started["service_pid"], signal.SIGKILL)
            back = self.bed.event("recovered", count=times, alive=nodes)
            self.assertEqual(("3", "0"), (back["back"], back["gone"]))
        self.assert_one_generation()
        self.end(workers, nodes)

    def test_of_a_service_that_hangs(self):
        nodes, workers = self.start_nodes(3)
        started, node = self.serving(nodes)
        os.kill(started["service_pid"], signal.SIGSTOP)
        gone = self.bed.event("service_gone", alive=nodes)
        self.assertEqual(("lost its lease", started["pid"]), (gone["how"], gone["pid"]))
        back = self.bed.event("recovered", alive=nodes)
        self.assertEqual(("3", "0"), (back["back"], back["gone"]))
        said = "the rendezvous service of this node lost its lease; another one takes the job over"
        self.bed.wait(lambda: said in node.text(), "what the user is told")
        self.assert_one_generation()
        self.end(workers, nodes)

    def lose(self, node, service_pid):
        """As when the machine goes: nobody hears a last word of the agent or of its service."""
        node.signal(signal.SIGSTOP)
        os.kill(service_pid, signal.SIGKILL)

    def test_of_a_node_that_is_lost(self):
        """Nobody takes its place: the others go on without it, sooner than the lease of 5 s would tell."""
        nodes, _ = self.start_nodes(3)
        started, lost = self.serving(nodes)
        self.lose(lost, started["service_pid"])
        left = [node for node in nodes if node is not lost]
        workers = self.bed.workers(2, 2, alive=left)
        gone = self.bed.event("node_lost", alive=left)
        self.assertLess(int(gone["silent_ms"]), 5000, "from when the new service began")
        self.assertEqual(1, len(self.bed.events.find("node_lost")))
        self.bed.finish(workers)
        for node in left:
            self.assert_status(0, node)
        lost.signal(signal.SIGKILL)

    def test_of_an_agent_that_was_killed(self):
        nodes, _ = self.start_nodes(3)
        _, lost = self.serving(nodes)
        lost.signal(signal.SIGKILL)
        left = [node for node in nodes if node is not lost]
        workers = self.bed.workers(2, 2, alive=left)
        self.bed.finish(workers)
        for node in left:
            self.assert_status(0, node)

    def test_a_node_that_leaves_hands_the_service_over(self):
        nodes, _ = self.start_nodes(3)
        _, leaving = self.serving(nodes)
        leaving.signal(signal.SIGTERM)
        left = [node for node in nodes if node is not leaving]
        leaving.wait(20 * SLOW)
        workers = self.bed.workers(2, 2, alive=left)
        self.bed.finish(workers)
        for node in left:
            self.assert_status(0, node)

    def test_twin_without_etcd(self):
        """The same loss ends the job where one node's address is the service's."""
        port = free_port()
        nodes = [self.bed.agent(f"node{index}", ["--nnodes", "2:3", "--rdzv_backend", "c10d",
                                                 "--rdzv_endpoint", f"127.0.0.1:{port}",
                                                 "--rdzv_conf", f"is_host={int(index == 0)}",
                                                 "--service_loss_timeout", 11, "--local_addr", "127.0.0.1"])
                 for index in range(3)]
        self.bed.workers(1, 3, alive=nodes)
        started, lost = self.serving(nodes)
        self.lose(lost, started["service_pid"])
        for node in nodes[1:]:
            self.assert_status(1, node, timeout=60 * SLOW)
        lost.signal(signal.SIGKILL)


class Members(EtcdTestCase):
    """etcd itself loses members."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def setUp(self):
        super().setUp()
        self.etcd = EtcdCluster()
        self.addCleanup(self.etcd.stop)

    def test_its_leader_and_the_service_are_lost_together(self):
        nodes, workers = self.start_nodes(3)
        started, _ = self.serving(nodes)
        self.etcd.kill(self.etcd.leader())
        os.kill(started["service_pid"], signal.SIGKILL)
        back = self.bed.event("recovered", alive=nodes)
        self.assertEqual(("3", "0"), (back["back"], back["gone"]))
        self.assert_one_generation()
        self.end(workers, nodes)

    def test_all_of_it_is_away_for_a_while(self):
        """Longer than the lease: the service gives the job up; workers go on, and the job goes on when etcd is back."""
        nodes, workers = self.start_nodes(2)
        self.serving(nodes)
        for index in range(3):
            self.etcd.kill(index)
        self.bed.event("service_gone", alive=nodes)
        for index in range(3):
            self.etcd.start(index)
        back = self.bed.event("recovered", alive=nodes)
        self.assertEqual(("2", "0"), (back["back"], back["gone"]))
        self.assert_one_generation()
        self.end(workers, nodes)

    def test_users_and_passwords(self):
        for words in (("user", "add", "root:secret"), ("user", "grant-role", "root", "root"), ("user", "add", "train:pass"),
                      ("role", "add", "jobs"), ("role", "grant-permission", "--prefix=true", "jobs", "readwrite", "/ddprun/"),
                      ("user", "grant-role", "train", "jobs"), ("auth", "enable")):
            self.etcd.control(*words)
        self.etcd.credentials = ["--user", "root:secret"]
        with_password = {**self.bed.environment, "DDPRUN_ETCD_PASSWORD": "pass"}
        nodes = [self.bed.agent(f"node{index}", self.options("--nnodes", 2, "--rdzv_conf", "etcd_user=train"), env=with_password)
                 for index in range(2)]
        self.end(self.bed.workers(1, 2, alive=nodes), nodes)
        wrong = self.bed.agent("wrong", self.options("--nnodes", 2, "--rdzv_conf", "etcd_user=train"),
                               env={**self.bed.environment, "DDPRUN_ETCD_PASSWORD": "no"})
        self.assert_status(1, wrong)
        self.assertIn("as user 'train': ", wrong.text())
        none = self.bed.agent("none", self.options("--nnodes", 2))
        self.assert_status(1, none)
        self.assertIn("etcdserver: user name is empty", none.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
