#!/usr/bin/env python3
"""Jobs whose record is in etcd: any node can have the service, and the loss of the one that has it is survived."""

import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, ROOT, SLOW, BedTestCase, free_port, silent_port  # noqa: E402
from etcd import Authority, EtcdCluster, etcd_is_there  # noqa: E402
from timeline import wait_readable  # noqa: E402

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

    def survive(self, nodes):
        """The loss of the service that has the job by now: others may have lost it before, while etcd was away."""
        killed = self.kill_newest_service(nodes)
        back = self.bed.event("recovered", after=killed, alive=nodes)
        self.assertEqual((str(len(nodes)), "0"), (back["back"], back["gone"]))
        self.assert_one_generation()

    def kill_newest_service(self, nodes):
        """Returns when."""
        started = {"t": 0.0}
        while True:
            started = self.bed.event("service_started", after=started["t"], alive=nodes)
            if self.bed.events.find("service_started", after=started["t"]):
                continue
            killed = time.monotonic()
            try:
                os.kill(started["service_pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended by itself: another one starts
            return killed

    def assert_one_generation(self):
        self.bed.follower.refresh()
        self.assertEqual(["1"], [line["generation"] for line in self.bed.events.find("generation")])
        self.assertEqual([], self.bed.events.find("node_lost") + self.bed.events.find("round_closing"))

    def end(self, workers, nodes):
        self.bed.finish(workers)
        for node in nodes:
            self.assert_status(0, node)
        left = [key for key in self.etcd.keys() if self.run_id in key]
        self.assertEqual(["ended"], [key.rpartition("/")[2] for key in left], "a job that is over leaves one key")
        self.assertEqual(600, self.etcd.granted(left[0]))


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

    def test_a_name_that_is_used_again_at_once(self):
        """torchrun takes it, too; nobody of the new run is late for the old one, also when the service is lost."""
        nodes, workers = self.start_nodes(2)
        self.end(workers, nodes)
        status = self.bed.run("status", ["status", *self.options()[:6]])
        self.assert_status(1, status)
        self.assertIn(f"the job '{self.run_id}' has ended (", status.text())
        again = [self.bed.agent(f"again{index}", self.options("--nnodes", 2)) for index in range(2)]
        workers = [line for line in self.bed.workers(1, 4, alive=again) if line not in workers]
        self.assertEqual(1, sum("This node began after that end" in node.text() for node in again))
        self.kill_newest_service(again)
        self.bed.event("recovered", alive=again)
        self.end(workers, again)
        self.assertEqual(1, sum(node.text().count("has ended") for node in again))

    def test_a_worker_that_fails_restarts_all(self):
        nodes, workers = self.start_nodes(2, "--max_restarts", 1)
        os.kill(workers[0]["pid"], signal.SIGKILL)
        self.end(self.bed.workers(2, 2, alive=nodes), nodes)

    def test_nothing_there(self):
        port, nobody = silent_port()
        with nobody:
            agent = self.bed.run("alone", ["--rdzv_backend", "etcd", "--rdzv_endpoint", f"127.0.0.1:{port}",
                                           "--rdzv_conf", "read_timeout=6", "--nnodes", 2, MARKING_WORKER])
            self.assert_status(1, agent)
        self.assertRegex(agent.text(), r"etcd at 127\.0\.0\.1:\d+ does not answer; 127\.0\.0\.1:\d+: .*Connection refused")


class Takeover(EtcdTestCase):
    def test_of_a_service_that_was_killed(self):
        nodes, workers = self.start_nodes(3)
        for _ in range(3):
            self.survive(nodes)
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
        """Kills the agent and its service as if the machine were lost: they send no last message."""
        node.signal(signal.SIGSTOP)
        os.kill(service_pid, signal.SIGKILL)

    def test_of_a_node_that_is_lost(self):
        """No node takes the lost one's place: the others go on without it, before its lease of 5 s has expired."""
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


class TwoServices(EtcdTestCase):
    """One that no longer leads, and doesn't know it: it writes nothing, and nobody obeys it."""

    DECISIONS = ("generation", "node_lost", "node_left", "round_closing", "round_closed", "verdict")

    def assert_ends(self, pidfd):
        """The process ends. It may stay a zombie, because its parent is stopped."""
        self.addCleanup(os.close, pidfd)
        self.assertTrue(wait_readable(pidfd, 20 * SLOW), "the old service still runs")

    def said_by(self, service_pid, after):
        self.bed.follower.refresh()
        return [line for line in self.bed.events.lines
                if line.get("pid") == service_pid and line["t"] > after and line["event"] in self.DECISIONS]

    def test_one_that_slept_until_another_had_its_place(self):
        """While the service slept, a worker's failure was reported to it."""
        nodes, workers = self.start_nodes(3, "--max_restarts", 1)
        started, sleeping = self.serving(nodes)
        left = [node for node in nodes if node is not sleeping]
        sleeping.signal(signal.SIGSTOP)  # else it would end its service
        os.kill(started["service_pid"], signal.SIGSTOP)
        slept = time.monotonic()
        names = {line["pid"]: line["node"] for line in self.bed.events.find("agent_start")}
        failing = next(line for line in workers if line["environment"]["GROUP_RANK"] != self.rank_of(names[sleeping.pid]))
        os.kill(failing["pid"], signal.SIGKILL)
        again = self.bed.workers(2, 2, alive=left)
        record, leader = (self.etcd.value(f"/ddprun/{self.run_id}/{name}") for name in ("record", "leader"))
        service = os.pidfd_open(started["service_pid"])
        os.kill(started["service_pid"], signal.SIGCONT)
        self.assert_ends(service)
        self.assertEqual([], self.said_by(started["service_pid"], slept))
        self.assertEqual((record, leader),
                         tuple(self.etcd.value(f"/ddprun/{self.run_id}/{name}") for name in ("record", "leader")))
        self.finish_without(sleeping, again, left)

    def finish_without(self, lost, workers, left):
        self.bed.finish(workers)
        for node in left:
            self.assert_status(0, node)
        self.assertEqual(["1", "2"], [line["generation"] for line in self.bed.events.find("generation")])
        lost.signal(signal.SIGKILL)

    def rank_of(self, node):
        ranks = self.bed.events.find("generation")[-1]["ranks"]
        return str([part.split("=")[0] for part in ranks.split()].index(node))

    def test_one_that_is_awake(self):
        """The service's lease lasts; only its key is gone. It can't write what it decides when its agents have left it."""
        nodes, _ = self.start_nodes(3)
        started, stopped = self.serving(nodes)
        left = [node for node in nodes if node is not stopped]
        stopped.signal(signal.SIGSTOP)  # else it would end its service
        service, deposed = os.pidfd_open(started["service_pid"]), time.monotonic()
        self.etcd.control("del", f"/ddprun/{self.run_id}/leader")
        self.assertNotEqual(started["pid"], self.bed.event("service_started", count=2, alive=left)["pid"])
        self.assert_ends(service)
        said = "the rendezvous service ends: another service has taken the job over"
        self.bed.wait(lambda: said in stopped.text(), "what it says", alive=left)
        again = self.bed.workers(2, 2, alive=left)  # the node with the deposed service has kVanishedLease to come back (R10)
        self.assertEqual([], self.said_by(started["service_pid"], deposed))
        self.finish_without(stopped, again, left)


    def test_twin_that_still_leads(self):
        nodes, _ = self.start_nodes(3, "--lease", 1)
        started, stopped = self.serving(nodes)
        began = time.monotonic()
        stopped.signal(signal.SIGSTOP)
        left = [node for node in nodes if node is not stopped]
        again = self.bed.workers(2, 2, alive=left)
        self.assertIn("node_lost", [line["event"] for line in self.said_by(started["service_pid"], began)])
        self.finish_without(stopped, again, left)


class OwnEtcd(EtcdTestCase):
    """Each test has a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def start_etcd(self, **options):
        self.etcd = EtcdCluster(**options)
        self.addCleanup(self.etcd.stop)


class Tls(OwnEtcd):
    """etcd shows a certificate, and wants one."""

    def setUp(self):
        super().setUp()
        self.old, self.new = (Authority(self.bed.path(name)) for name in ("old", "new"))
        self.mine = [self.bed.path(name) for name in ("ca.crt", "node.crt", "node.key")]

    def give(self, authority, *trusted):
        """From now on the nodes' certificates are signed by `authority`, and they trust `trusted`, too."""
        certificate, key = authority.sign("node")
        texts = []
        for path in (certificate, key):
            with open(path, encoding="utf-8") as source:
                texts.append(source.read())
        for path, text in zip(self.mine, [Authority.bundle(authority, *trusted), *texts]):
            with open(path + ".new", "w", encoding="utf-8") as sink:
                sink.write(text)
            os.rename(path + ".new", path)

    def conf(self, **changes):
        keys = {"protocol": "https", **dict(zip(("ca_cert", "cert", "key"), self.mine)), **changes}
        return ["--rdzv_conf", ",".join(f"{key}={value}" for key, value in keys.items() if value)]

    def test_a_job(self):
        self.start_etcd(authority=self.old)
        self.give(self.old)
        nodes, workers = self.start_nodes(2, *self.conf())
        self.survive(nodes)
        self.end(workers, nodes)

    def assert_refused(self, says, *conf):
        agent = self.bed.agent(f"stranger{len(self.bed.agents)}", self.options("--nnodes", 2, *conf))
        self.assert_status(1, agent)
        self.assertIn(says, agent.text())

    def test_who_is_no_client_hears_why(self):
        self.start_etcd(members=1, authority=self.old)
        self.give(self.old)
        self.assert_refused("can't be authenticated (TLS: ", *self.conf(ca_cert=self.new.ca))
        stranger, key = self.new.sign("stranger")
        for says, changes in (
                ("does it speak TLS, and want a certificate (--rdzv_conf cert=…,key=…)?", {"cert": "", "key": ""}),
                ("does it speak TLS, and know the CA of our certificate?", {"cert": stranger, "key": key}),
                ("our certificate and its key don't belong together", {"key": key}),
                ("does it want TLS (--rdzv_conf protocol=https)?", {"protocol": "http", "ca_cert": "", "cert": "", "key": ""})):
            self.assert_refused(says, *self.conf(**changes, read_timeout=6))
        self.assert_refused(f"for etcd: '{self.bed.path('none')}' can't be read", *self.conf(key=self.bed.path("none")))

    def test_etcd_without_it(self):
        self.start_etcd(members=1)
        self.give(self.old)
        self.assert_refused("does it speak TLS", *self.conf(read_timeout=6))

    def start_between_two(self):
        """A job with the old CA; its etcd trusts both."""
        self.start_etcd(authority=self.old, trusted=(self.new,))
        self.give(self.old)
        nodes, workers = self.start_nodes(3, *self.conf())
        self.serving(nodes)
        return nodes, workers

    def go_over(self):
        """etcd knows only the new CA, and ends all connections."""
        self.etcd.serve_with(self.new)
        for index in range(3):
            self.etcd.kill(index)
            self.etcd.start(index)
            self.etcd.wait(lambda at=index: self.etcd.is_healthy(at), "the member to be back")

    def test_certificates_are_exchanged_under_a_job(self):
        nodes, workers = self.start_between_two()
        self.give(self.new, self.old)
        self.go_over()
        self.survive(nodes)
        self.end(workers, nodes)

    def test_twin_whose_nodes_get_theirs_too_late(self):
        """No service runs until then, and the workers go on."""
        nodes, workers = self.start_between_two()
        self.go_over()
        self.bed.event("service_gone", alive=nodes)
        self.give(self.new, self.old)
        back = self.bed.event("recovered", alive=nodes)
        self.assertEqual(("3", "0"), (back["back"], back["gone"]))
        self.assert_one_generation()
        self.end(workers, nodes)


class Members(OwnEtcd):
    """etcd itself loses members."""

    def setUp(self):
        super().setUp()
        self.start_etcd()

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
        self.check_status_of_the_named_etcd_alone()
        for index in range(3):
            self.etcd.start(index)
        back = self.bed.event("recovered", alive=nodes)
        self.assertEqual(("2", "0"), (back["back"], back["gone"]))
        self.assert_one_generation()
        self.end(workers, nodes)

    def check_status_of_the_named_etcd_alone(self):
        """While none answers, the nodes that have no service are shown: those of the etcd that was asked for."""
        port, nobody = silent_port()
        with nobody:
            for endpoints, status, shown in ((self.etcd.endpoints, 0, True), (f"127.0.0.1:{port}", 1, False)):
                asker = self.bed.run(f"status{status}", ["status", "--rdzv_backend", "etcd", "--rdzv_endpoint", endpoints,
                                                         "--timeout", 1])
                self.assert_status(status, asker)
                self.assertEqual(shown, self.run_id in asker.text(), asker.text())

    def test_users_and_passwords(self):
        self.etcd.add_user("train", "pass", "/ddprun/")
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


class Tokens(OwnEtcd):
    """etcd forgets a client's identity when it hasn't heard from the client for a while."""

    def test_one_that_is_over(self):
        self.start_etcd(options=["--auth-token-ttl", "1", "--bcrypt-cost", "4"])
        self.etcd.add_user("train", "pass", "/ddprun/")
        nodes = [self.bed.agent(f"node{index}", self.options("--nnodes", 2, "--rdzv_conf", "etcd_user=train"),
                                env={**self.bed.environment, "DDPRUN_ETCD_PASSWORD": "pass"}) for index in range(2)]
        workers = self.bed.workers(1, 2, alive=nodes)
        self.serving(nodes)
        for _ in range(2):
            self.etcd.wait_for_lease(4)  # all agents that only watch have been silent for longer than a token lasts
            self.survive(nodes)
        self.assertIn("invalid auth token", self.etcd.log())
        self.end(workers, nodes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
