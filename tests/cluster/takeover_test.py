#!/usr/bin/env python3
"""The machine of the rendezvous service is lost: another agent at its address, or etcd, has the job go on.

One trial of each kind; bench/host_lost_bench.py and bench/etcd_takeover_bench.py have many.
"""

import random
import unittest

import job
import takeover
from cluster import ClusterTestCaseMixin
from etcd import EtcdCluster, etcd_is_there
from seeds import drawn_seed

SEED = drawn_seed()


class StateDirIsShared(ClusterTestCaseMixin, unittest.TestCase):
    hosts = 4

    def check(self, other_machine):
        print(f"seed {SEED}", flush=True)
        takeover.check(self, takeover.HostLost(self.cluster, random.Random(SEED), other_machine),
                       lambda _: takeover.REPLACED_WITHIN)

    def test_the_same_machine_is_back(self):
        self.check(other_machine=False)

    def test_another_machine_has_the_address(self):
        self.check(other_machine=True)


@unittest.skipUnless(etcd_is_there(), "there is no etcd here (Debian's etcd-server and etcd-client)")
class Etcd(ClusterTestCaseMixin, unittest.TestCase):
    hosts = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.etcd = EtcdCluster(hosts=cls.cluster)
        cls.addClassCleanup(cls.etcd.stop)

    def check(self, with_leader):
        print(f"seed {SEED}", flush=True)
        takeover.check(self, takeover.EtcdNodeLost(self.cluster, self.etcd, random.Random(SEED), with_leader),
                       takeover.EtcdNodeLost.bound)

    def test_a_member_of_etcd_is_lost_too(self):
        self.check(with_leader=False)

    def test_its_leader_is_lost_too(self):
        self.check(with_leader=True)


if __name__ == "__main__":
    job.main()
