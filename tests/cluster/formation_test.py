#!/usr/bin/env python3
"""Jobs form across hosts: static, by name, by address, with any order of arrival."""

import job
from bed import PATIENCE


class Formation(job.ClusterTestCase):
    def check_environment(self, workers, hosts, master):
        self.assertEqual(list(range(len(workers))), [line["rank"] for line in workers])
        self.assertEqual(hosts, [line["host"] for line in workers])
        self.assertEqual({master}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.assertEqual(1, len({line["environment"]["MASTER_PORT"] for line in workers}))

    def test_static(self):
        """Node rank 0 hosts the service, even if another node comes first; master address and port are the user's."""
        def node(rank):
            return self.bed.agent(f"node{rank}", ["--nnodes", 2, "--node_rank", rank, "--nproc_per_node", 2,
                                                  "--master_addr", "n1", "--master_port", 29555], host=rank + 1)
        agents = [node(1), node(0)]
        workers = self.bed.workers(1, 4, alive=agents)
        self.check_environment(workers, ["n1", "n1", "n2", "n2"], "n1")
        self.assertEqual("29555", workers[0]["environment"]["MASTER_PORT"])
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)

    def test_c10d_by_name(self):
        agents, _ = self.start_all(2, "2")
        self.assertEqual("n1", self.bed.workers(1, 2)[0]["host"], "the endpoint's host comes first")
        self.finish(agents, 1, 2)

    def test_c10d_by_address(self):
        """No name service is needed, and the host finds out by its addresses that the endpoint is its own."""
        agents = [self.start(i, "2", endpoint=f"10.77.0.2:{job.PORT}") for i in (1, 2)]
        workers = self.bed.workers(1, 2, alive=agents)
        self.assertEqual(["n2", "n1"], [line["host"] for line in workers])
        self.finish(agents, 1, 2)

    def test_three_nodes_in_any_order(self):
        agents = [self.start(i, "3", options=("--nproc_per_node", 2)) for i in (3, 1, 2)]
        workers = self.bed.workers(1, 6, alive=agents)
        self.assertEqual([0, 1, 2, 3, 4, 5], [line["rank"] for line in workers])
        self.assertEqual("n1", workers[0]["host"])
        self.assertEqual({"6"}, {line["environment"]["WORLD_SIZE"] for line in workers})
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)

    def test_node_ranks_are_honoured(self):
        agents = [self.start(i, "3", options=("--node_rank", rank)) for i, rank in ((1, 2), (2, 0), (3, 1))]
        workers = self.bed.workers(1, 3, alive=agents)
        self.assertEqual(["n2", "n3", "n1"], [line["host"] for line in workers])
        self.finish(agents, 1, 3)

    def test_last_call(self):
        """Above the minimum the first round waits for more, but no longer than last_call_timeout."""
        agents = [self.start(1, "1:2", conf="last_call_timeout=1")]
        line = self.bed.workers(1, 1, alive=agents)[0]
        self.assertGreater(line["t"] - agents[0].started, 0.9)
        self.assertEqual(1, line["world"])
        self.finish(agents, 1, 1)

    def test_full_house_waits_for_nobody(self):
        """Negative control: with the maximum present there is no last call."""
        agents, generation = self.start_all(2, "1:2", conf="last_call_timeout=30")
        self.assertEqual(1, generation)
        self.finish(agents, 1, 2)

    def test_too_few_nodes(self):
        agent = self.start(1, "2", conf="join_timeout=1")
        self.assert_status(1, agent)
        self.assertIn("1 of 2", agent.text())


class Machines(job.ClusterTestCase):
    def test_the_nodes_are_compared(self):
        """ddprun env on all nodes: the first one names the one that is different."""
        self.cluster.set_file(2, "/etc/os-release", "PRETTY_NAME=Another\n")
        nodes = {i: self.bed.run(f"node{i}", ["env", "--nnodes", 3, "--rdzv_endpoint", f"n1:{job.PORT}"], host=i)
                 for i in (3, 1, 2)}
        for node in nodes.values():
            self.assert_status(0, node)
        text = nodes[1].text()
        self.assertRegex(text, r"3 nodes: n1, n[23], n[23]\n")
        self.assertRegex(text, r"other differences\n(.*\n)*?  system\n    .+: n1, n3\n    Another: n2\n")
        self.assertNotIn("differences that make runs fail", text)
        for i in (2, 3):
            self.assertIn("the report of all nodes is shown on rank 0's node, ", nodes[i].text())

    def test_a_job_of_another_network_is_not_this_machines(self):
        """A container that shares /tmp: in its own network, the job's address may belong to another machine."""
        agents, generation = self.start_all(2, "2")
        for host in (1, 2):
            asked = self.bed.run(f"status{host}", ["status"], host=host)
            self.assert_status(0, asked)
            self.assertIn("job job: running", asked.text())
        # Jobs of a machine's own sockets, which may run beside this test, are seen from every network of it.
        asked = self.bed.run("status3", ["status"], host=3)
        self.assertIn(asked.wait(PATIENCE), (0, 1))
        self.assertNotIn("job job: running", asked.text())
        # Host 3 can reach the job: with the address given, it does.
        named = self.bed.run("named", ["status", "--rdzv_endpoint", f"n1:{job.PORT}"], host=3)
        self.assert_status(0, named)
        self.finish(agents, generation, 2)


if __name__ == "__main__":
    job.main()
