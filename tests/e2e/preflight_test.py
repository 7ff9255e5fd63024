#!/usr/bin/env python3
"""ddprun test and --preflight on this machine: the nodes are agents beside each other."""

import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, TORCH_PYTHON, WHOLE, WORKER, BedTestCase, free_port, torch_is_there  # noqa: E402

# A Python without torch, whatever this one has.
WITHOUT_TORCH = {"PYTHON_EXEC": sys.executable, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
WITH_TORCH = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}
FAKE_DRIVER = os.path.join(os.path.dirname(os.path.dirname(DDPRUN)), "tests", "fake_nvml")


class PreflightTestCase(BedTestCase):
    def run_nodes(self, options=(), env=None, status=0):
        """`ddprun test` on two nodes: what the first one wrote, and the other."""
        words = ["test", "--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{free_port()}", *options]
        agents = [self.bed.run(f"test{i}", words, env={**WITHOUT_TORCH, **(env or {})}) for i in range(2)]
        for agent in agents:
            self.assert_status(status, agent, timeout=PATIENCE * 2)
        # The first node is the one that came first.
        return sorted((agent.text() for agent in agents), key=lambda text: "is shown on rank 0's node, " in text)

    def run_alone(self, *words, env=None, status=0):
        agent = self.bed.run("alone", words, env={**WITHOUT_TORCH, **(env or {})})
        self.assert_status(status, agent, timeout=PATIENCE * 2)
        return agent.text()


class TestCommand(PreflightTestCase):
    def test_two_nodes_without_torch(self):
        first, other = self.run_nodes()
        host = os.uname().nodename
        self.assertIn(f"network: 2 nodes ({host}/0, {host}/1), ", first)
        self.assertIn("of 400 datagrams", first)
        self.assertIn("  no node and no way is worse than the others\n", first)
        self.assertRegex(first, r"torch: not tested: \S+ of \S+ has no torch\n")
        self.assertNotIn("network:", other)

    def test_as_json(self):
        first, _ = self.run_nodes(["--json"])
        report = json.loads(first[first.index("{"):first.rindex("}") + 1])
        self.assertIsNone(report["torch"])
        network = report["network"]
        self.assertEqual([], network["findings"])
        self.assertEqual(2, len(network["ways"]))
        for way in network["ways"]:
            self.assertEqual(way["sent"], way["arrived"])
            self.assertGreater(way["bit_s"], 1e6)
            self.assertLess(way["round_trip_s"], 0.05 * SLOW)

    def test_options_of_the_real_run_are_taken(self):
        script = self.bed.path("not_there.py")
        text = self.run_alone("test", "--standalone", "--nproc_per_node", 2, "--max_restarts", 3, "--tee", 3, "--preflight",
                              script, "--lr", "0.1")
        self.assertIn("network: 1 node", text)
        self.assertEqual([], [name for name in os.listdir(self.bed.folder) if name == "logs"])

    def test_wrong_words(self):
        for words, status, text in ((["test", "--nnodse", 2], 2, "--nnodse"),
                                    (["test", "--nnodes", 2, "--standalone"], 2, "--standalone"),
                                    (["preflight-worker", "true"], 1, "for the workers of ddprun test")):
            self.assertIn(text, self.run_alone(*words, status=status))

    def test_help_teaches(self):
        text = self.run_alone("test", "--help")
        for part in ("Examples:", "Exit status: 0", "--network-only"):
            self.assertIn(part, text)
        self.assertIn("--rdzv-endpoint", self.run_alone("test", "--help-all"))


@unittest.skipUnless(torch_is_there(), "torch is not installed: scripts/setup")
class Torch(PreflightTestCase):
    def seconds_of_torch_itself(self):
        """What two processes take here, beside everything else that runs, until DDP could begin."""
        words = ("import torch.distributed as dist, torch; dist.init_process_group('gloo', store=dist.HashStore(), rank=0, "
                 "world_size=1); torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1)); dist.destroy_process_group()")
        began = time.monotonic()
        processes = [subprocess.Popen([TORCH_PYTHON, "-c", words], env={**os.environ, "OMP_NUM_THREADS": "1"})
                     for _ in range(2)]
        self.assertEqual([0, 0], [process.wait(PATIENCE) for process in processes])
        return time.monotonic() - began

    def test_two_nodes_within_ten_seconds(self):
        """Or not much later than torch itself. That is measured at another time, so the shortest of a few tries counts."""
        for _ in range(3):
            began = time.monotonic()
            first, _ = self.run_nodes(env=WITH_TORCH)
            took = time.monotonic() - began
            if took < 10 * SLOW or took < 2.5 * self.seconds_of_torch_itself():
                break
        else:
            self.fail(f"the last of three tries took {took:.1f} s")
        for line in ("DDP in a single process (gloo)", "GPUs available: 0", "Process 0/1 initialized on CPU", "World size: 1",
                     "Parameters: 1,010", "Process 0/1: success", "DDP on all ranks (gloo)", "World size: 2",
                     "Process 0/2: success", "Process 1/2: success", "all-reduce of 2 ranks",
                     "torch: all ranks trained, and agree"):
            self.assertIn(f"{line}\n", first)
        self.assertRegex(first, r"Time for 10 iterations: [\d.]+ s, [\d.]+ ms each\n")
        self.assertRegex(first, r"\n +4096 +1024 +float +sum +[\d.]+ +[\d.]+ +[\d.]+\n")

    def test_as_json(self):
        nproc = 2 if WHOLE else 1
        first, _ = self.run_nodes(["--json", "--nproc_per_node", nproc], env=WITH_TORCH)
        report = json.loads(first[first.index("{"):first.rindex("}") + 1])
        self.assertEqual(("gloo", 0), (report["torch"]["backend"], report["torch"]["gpus"]))
        self.assertEqual(1010, report["torch"]["all"]["parameters"])
        ranks = 2 * nproc
        self.assertEqual(ranks, len(report["torch"]["all"]["devices"]))
        row = report["torch"]["all_reduce"][-1]
        self.assertAlmostEqual(row["algbw_gb_s"] * 2 * (ranks - 1) / ranks, row["busbw_gb_s"])
        self.assertEqual(2, len(report["network"]["nodes"]))

    def test_where_one_rank_has_no_gpu_all_are_on_the_cpu(self):
        """A driver with one GPU, which torch counts, for two ranks: over NCCL and Gloo they would never meet."""
        gpus = self.bed.write("gpus", "name=NVIDIA L4;memory_mib=23034;torch=1\n")
        driver = {"LD_LIBRARY_PATH": FAKE_DRIVER, "FAKE_NVML_GPUS": gpus}
        text = self.run_alone("test", "--nproc_per_node", 2, env={**WITH_TORCH, **driver})
        self.assertIn("1 of 2 ranks have no GPU of their own, rank 1 for one: all are tested on the CPU", text)
        self.assertIn("DDP on all ranks (gloo)", text)
        self.assertIn("GPUs available: 1", text)

    def test_torch_that_fails_is_a_failed_job(self):
        package = self.bed.path("site")
        os.makedirs(os.path.join(package, "torch"))
        self.bed.write("site/torch/__init__.py", "raise ImportError('libcudart.so.12: cannot open shared object file')\n")
        text = self.run_alone("test", "--standalone", env={"PYTHONPATH": package}, status=1)
        self.assertIn("libcudart.so.12", text)


class Preflight(PreflightTestCase):
    def test_one_node_has_no_network(self):
        agent = self.bed.agent("alone", ["--standalone", "--preflight"])
        workers = self.bed.workers(1, 1, alive=[agent])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        self.assertNotIn("network", agent.text())

    def test_workers_start_after_it(self):
        options = ["--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--preflight", "--nproc_per_node", 2]
        agents = [self.bed.agent(f"node{i}", options, env={"OMP_NUM_THREADS": "1"}) for i in range(2)]
        workers = self.bed.workers(1, 4, alive=agents)
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)
        self.assertEqual(1, "".join(agent.text() for agent in agents).count("network: 2 nodes"))

    def test_from_a_file(self):
        job = self.bed.write("job.yaml", f"nnodes: 2\nrdzv_endpoint: 127.0.0.1:{free_port()}\npreflight: true\n")
        agents = [self.bed.run(f"node{i}", ["--config", job, WORKER, self.bed.journal.path], env={"OMP_NUM_THREADS": "1"})
                  for i in range(2)]
        self.bed.finish(self.bed.workers(1, 2, alive=agents))
        for agent in agents:
            self.assert_status(0, agent)
        self.assertIn("network: 2 nodes", "".join(agent.text() for agent in agents))

    def test_all_nodes_or_none(self):
        words = ["--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--rdzv_conf", "join_timeout=3"]
        agents = [self.bed.agent("with", [*words, "--preflight"]), self.bed.agent("without", words)]
        texts = [(agent.wait(PATIENCE), agent.text()) for agent in agents]
        self.assertNotIn(0, [status for status, _ in texts])
        self.assertIn("with --preflight", "".join(text for _, text in texts))


if __name__ == "__main__":
    unittest.main()
