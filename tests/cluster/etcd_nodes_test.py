#!/usr/bin/env python3
"""Nodes of a job whose record is in etcd that come late, or are waited for, on hosts of their own."""

import unittest

import job
from etcd import EtcdCluster, etcd_is_there

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
        """It reaches etcd, but not the service."""
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
        """It may be the first node of a new run of that name: it hears of the end, and runs the job."""
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


if __name__ == "__main__":
    job.main()
