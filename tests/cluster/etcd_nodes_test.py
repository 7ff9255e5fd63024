#!/usr/bin/env python3
"""Nodes of a job whose record is in etcd that come late, or are waited for, on hosts of their own."""

import json
import time
import unittest

import job
from bed import SLOW
from etcd import EtcdCluster, etcd_is_there
from scrapes import Scrapes

SERVICE_PORT = 29555


@unittest.skipUnless(etcd_is_there(), "there is no etcd here (Debian's etcd-server and etcd-client)")
class EtcdNodes(job.ClusterTestCase):
    """etcd is on host 1 alone, which no test cuts off."""

    hosts = 3

    def setUp(self):
        super().setUp()
        self.etcd = EtcdCluster(members=1, hosts=self.cluster)
        self.addCleanup(self.etcd.stop)
        self.run_id = f"nodes{self.bed.tag}"
        self.meet = ["--rdzv_backend", "etcd", "--rdzv_endpoint", self.etcd.endpoints, "--rdzv_id", self.run_id]

    def node(self, host, nnodes, *options, name=None):
        return self.bed.agent(name or f"agent{host}", ["--nnodes", nnodes, *self.meet, "--service_port", SERVICE_PORT, *options],
                              host=host)


class Late(EtcdNodes):
    """The job has ended when a node comes."""

    def test_a_node_that_began_before_the_end_does_not_begin_the_job_again(self):
        """The late node reaches etcd, but not the service."""
        only = self.node(2, "1:2", "--rdzv_conf", "last_call_timeout=0.1")
        workers = self.bed.workers(1, 1, alive=[only])
        self.cluster.cut_one_way(3, 2)
        late = self.node(3, "1:2")
        self.bed.wait(lambda: "can't reach the rendezvous service" in late.text(), "a node that found the service", alive=[late])
        self.bed.finish(workers)
        self.assert_status(0, only)
        self.assert_status(1, late)
        self.assertRegex(late.text(), rf"the job '{self.run_id}' has ended \(.*\); to run it again, start all nodes anew")
        self.assertEqual(1, len(self.bed.events.find("service_started")))

    def test_twin_that_begins_after_the_end(self):
        """The node may be the first one of a new run of that name: it hears of the end, and runs the job."""
        options = ("1:2", "--rdzv_conf", "last_call_timeout=0.1")
        first = self.node(2, *options)
        workers = self.bed.workers(1, 1, alive=[first])
        self.bed.finish(workers)
        self.assert_status(0, first)
        again = self.node(3, *options)
        self.bed.finish([line for line in self.bed.workers(1, 2, alive=[again]) if line not in workers])
        self.assert_status(0, again)
        self.assertRegex(again.text(), rf"the job '{self.run_id}' has ended \(.*\); to run it again, start all nodes anew\. This "
                         "node began after that end")


class Waiting(EtcdNodes):
    """A node is missing when the machine of the service is lost, and with it the clock that the record was made by."""

    WAITED = 4  # seconds, before that

    def wait_for_the_third(self):
        """Two nodes of three, and the page of their job on host 1; returns the node that is left when the other's machine is
        lost, and the page's scrapes."""
        self.cluster.set_file(3, "/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000003\n")
        first = self.node(2, 3)
        self.bed.event("service_started", alive=[first])
        left = self.node(3, 3)
        page = self.bed.run("page", ["status", "--status_page", 8080, *self.meet], host=1)
        self.bed.wait(lambda: "status page on http://127.0.0.1:8080/" in page.text(), "a page", alive=[page])
        scrapes = Scrapes(self.bed, "http://127.0.0.1:8080/", lambda command: self.cluster.command(1, command))
        waited = f'ddprun_job_seconds_total{{run_id="{self.run_id}",cause="rendezvous"}}'
        self.bed.event("node_joined", count=2, alive=[first, left])
        self.bed.wait(lambda: scrapes.last().get(waited, 0) > self.WAITED, "a wait", alive=[left, page])
        self.cluster.power_off(2)
        first.wait(20 * SLOW)
        self.bed.event("recovered", alive=[left])
        before = scrapes.last()[waited]
        self.bed.wait(lambda: scrapes.last()[waited] > before, "the page of the new service", alive=[left, page])
        return left, scrapes

    def test_the_books_count_the_whole_wait(self):
        left, scrapes = self.wait_for_the_third()
        joined = self.bed.event("node_joined")["t"]
        earliest = time.monotonic() - joined
        status = self.bed.run("status", ["status", "--json", *self.meet], host=3)
        self.assert_status(0, status)
        latest = time.monotonic() - joined
        shown = json.loads(status.text())["jobs"][0]
        books = {each["cause"]: int(each["us"]) / 1e6 for each in shown["ledger"]}
        self.assertGreater(books["rendezvous"], earliest - 1)
        self.assertLess(books["rendezvous"], latest + 0.1)
        self.assertAlmostEqual(int(shown["age_ms"]) / 1e3, sum(books.values()), delta=0.002)
        self.assertEqual([], scrapes.falls())
        self.assert_status(0, self.bed.run("stop", ["stop", *self.meet], host=3))
        self.assert_status(1, left)
        waited = int(self.bed.event("ledger")["rendezvous_ms"]) / 1e3
        self.assertAlmostEqual(self.bed.event("verdict", who="service")["t"] - joined, waited, delta=1)


if __name__ == "__main__":
    job.main()
