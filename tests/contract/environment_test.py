#!/usr/bin/env python3
"""Checks 39 to 52: what a worker is given, and the store at MASTER_ADDR:MASTER_PORT."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, Expect, Row, check  # noqa: E402

# Values that differ from run to run.
VARYING = {
    "MASTER_PORT": r"\d+",
    "TORCHELASTIC_ERROR_FILE": r".*/attempt_0/0/error\.json",
    "CONTRACT_JOURNAL": ".*", "TMPDIR": ".*", "PWD": ".*", "DDPRUN_RUN_TAG": ".*",
}
PLAIN = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
    "ROLE_NAME": "default", "ROLE_RANK": "0", "ROLE_WORLD_SIZE": "1", "MASTER_ADDR": r"127\.0\.0\.1",
    "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "[0-9a-f-]{36}",
    "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": None, "CUDA_VISIBLE_DEVICES": None, **VARYING,
}
# What torchruns set otherwise.
PINNED = {"MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
NEWEST = {"MASTER_ADDR": ".+"}
TWO = ("--nproc-per-node", "2", "W")
VIRTUAL = ("--virtual-local-rank", *TWO)

TABLE = [
    Row(40, "ipv6", ("--master-addr", "[::1]", "--master-port", "23456", "W"),
        Expect(0, workers=1, env={"MASTER_ADDR": "::1", "MASTER_PORT": "23456"})),
    Row(42, "threads_of_two_workers", TWO, differs=Differs(42, why="one line instead of a starred banner"),
        ours=Expect(0, workers=2, env={"OMP_NUM_THREADS": "1"}, err=("OMP_NUM_THREADS",), none=(r"\*{9}",)),
        theirs=Expect(0, workers=2, env={"OMP_NUM_THREADS": "1"}, err=(r"\*{9}", "OMP_NUM_THREADS"))),
    Row(42, "threads_as_told", TWO, Expect(0, workers=2, env={"OMP_NUM_THREADS": "5"}, none=("OMP_NUM_THREADS",)),
        env={"OMP_NUM_THREADS": "5"}),
    Row(42, "threads_of_one_worker", ("W",), Expect(0, workers=1, env={"OMP_NUM_THREADS": None}, none=("OMP_NUM_THREADS",))),
    Row(43, "nccl_as_told", ("W",), Expect(0, workers=1, env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
    Row(43, "nccl_default", ("W",), Expect(0, workers=1, env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"})),
    Row(45, "too_few_devices", VIRTUAL, env={"CUDA_VISIBLE_DEVICES": "5"}, differs=Differs(51),
        ours=Expect(1, err=("CUDA_VISIBLE_DEVICES",), none=("Traceback",)), theirs=Expect(1, err=("ValueError",))),
]

ALL_REDUCE = """import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
probe.tell("sum", value=value.item())
probe.tell()
dist.destroy_process_group()
"""
SERVER_AT_RANK_0 = """import datetime, torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, probe.rank == 0,
                      datetime.timedelta(seconds=60), wait_for_workers=False)
store.set(f"from {probe.rank}", str(probe.rank))
probe.tell("read", value=store.get(f"from {1 - probe.rank}").decode())
store.add("done", 1)
while int(store.add("done", 0)) < 2: pass
"""


@contract.rows(TABLE)
class Environment(contract.ContractCase):
    def run_one(self, launcher, words, env=None, script=None, private=True, **options):
        """A job of one node, after its workers have reported and it has ended with 0."""
        job = self.job(launcher)
        job.private = private
        ended = job.run([*words, *([job.script(script)] if script else [])], env=env, **options)
        self.assertEqual(0, ended.status, ended.err)
        return job

    @check(39, recorded=True, differs=Differs(26, only=jobs.PINNED,
                                              why="MASTER_PORT is free, not 29500, where no port is given"))
    def test_39_whole_environment(self):
        """Every variable but those of VARYING is the same with ddprun and the newest torchrun."""
        for launcher in self.launchers():
            job = self.run_one(launcher, ["W"])
            own = PINNED if launcher is jobs.PINNED else NEWEST if launcher is jobs.NEWEST else {}
            Expect(0, workers=1, env={**PLAIN, **own}).verify(self, jobs.Ended(0, "", "", 0), job.told(), launcher.name)

    @check(41, recorded=True)
    def test_41_two_standalone_jobs(self):
        for launcher in self.launchers():
            pair = [self.job(launcher) for _ in range(2)]
            nodes = [job.start(["--standalone", "--nproc-per-node", "2", job.script("probe.wait()\n")]) for job in pair]
            lines = [job.await_workers(2, alive=[node]) for job, node in zip(pair, nodes)]
            for job, node, told in zip(pair, nodes, lines):
                self.assertEqual(["0", "1"], [line["environment"]["RANK"] for line in told])
                for line in told:
                    self.assertRegex(line["environment"]["TORCHELASTIC_RUN_ID"], r"\A\w{8}(-[0-9a-f]{4}){3}-\w{12}\Z")
                job.finish(told)
                self.assertEqual(0, job.end(node).status)
            self.assertNotEqual(*({line["environment"]["MASTER_PORT"] for line in told} for told in lines))

    def devices(self, job):
        return [(line["environment"]["LOCAL_RANK"], line["environment"]["CUDA_VISIBLE_DEVICES"]) for line in job.told()]

    @check(44, recorded=True)
    def test_44_virtual_local_rank(self):
        for launcher in self.launchers():
            self.assertEqual([("0", "0"), ("0", "1")], self.devices(self.run_one(launcher, VIRTUAL)))

    @check(45, recorded=True)
    def test_45_virtual_local_rank_among_chosen_devices(self):
        for launcher in self.launchers():
            job = self.run_one(launcher, VIRTUAL, env={"CUDA_VISIBLE_DEVICES": "5, 7"})
            self.assertEqual([("0", "5"), ("0", "7")], self.devices(job))

    @check(46, recorded=True)
    def test_46_sessions_input_and_folder(self):
        for launcher in self.launchers():
            job = self.run_one(launcher, ["W"])
            line = job.told()[0]
            self.assertEqual((line["pid"], line["pid"]), (line["pgid"], line["sid"]))
            self.assertEqual(os.path.realpath(job.folder), os.path.realpath(line["cwd"]))
            job = self.job(launcher)
            job.private = True
            with open(job.write("in", "hi\n"), encoding="utf-8") as stdin:
                self.assertEqual("hi\n", job.run(["--no-python", "cat"], stdin=stdin).out)

    def two_static_nodes(self, launcher, options, env=None):
        """The workers of two static nodes; options[i] are node i's."""
        job = self.job(launcher)
        port = jobs.free_port()
        static = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", port]
        nodes = [job.start([*static, "--node-rank", rank, *more, "W"], name=f"node{rank}", env=env)
                 for rank, more in enumerate(options)]
        for node in nodes:
            ended = job.end(node)
            self.assertEqual(0, ended.status, ended.err)
        return [line["environment"] for line in job.told()]

    @check(47, recorded=True)
    def test_47_nodes_of_two_roles(self):
        for launcher in self.launchers():
            told = self.two_static_nodes(launcher, [["--nproc-per-node", 2, "--role", "b"], ["--role", "a"]])
            names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "ROLE_RANK",
                     "ROLE_WORLD_SIZE")
            self.assertEqual(["0 0 3 2 0 b 0 2", "1 1 3 2 0 b 1 2", "2 0 3 1 1 a 0 1"],
                             [" ".join(line[name] for name in names) for line in told])

    @check(48, recorded=True, differs=Differs(20, 21, why="the endpoint's host comes first, not the least text"))
    def test_48_who_is_group_rank_0(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            port = jobs.free_port()
            script = job.script("probe.tell(address=os.environ['ADDRESS_GIVEN'])\n")
            nodes = []
            for address, is_host in (("localhost", 1), ("127.0.0.1", 0)):
                nodes.append(job.start([*job.c10d(2, port, is_host=is_host), "--local-addr", address, script], name=address,
                                       env={"ADDRESS_GIVEN": address}))
                if job.ours and is_host:  # On one machine both own the endpoint's address, and the first one is first.
                    job.say_of(nodes[0], "1 of 2 nodes have joined", nodes)
            for node in nodes:
                ended = job.end(node)
                self.assertEqual(0, ended.status, ended.err)
            first = "localhost" if job.ours else "127.0.0.1"
            self.assertEqual(first, job.told()[0]["address"])
            self.assertEqual({first}, {line["environment"]["MASTER_ADDR"] for line in job.told()})

    @check(49, recorded=True)
    def test_49_identical_workers(self):
        for launcher in self.launchers():
            told = self.two_static_nodes(launcher, [["--nproc-per-node", 2]] * 2,
                                         {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"})
            self.assertEqual([str(rank) for rank in range(4)], [line["RANK"] for line in told])
            self.assertEqual([str(rank) for rank in range(4)], [line["ROLE_RANK"] for line in told])
            self.assertEqual({"4"}, {line["WORLD_SIZE"] for line in told})

    def all_reduce(self, launcher, env=None, **options):
        job = self.run_one(launcher, ["--standalone", "--nproc-per-node", 2],
                           {"PYTHON_EXEC": launcher.python, **(env or {})}, ALL_REDUCE, private=False, timeout=120 * jobs.SLOW,
                           **options)
        self.assertEqual([2.0, 2.0], [line["value"] for line in job.journal.find("sum")])
        return {line["environment"]["TORCHELASTIC_USE_AGENT_STORE"] for line in job.told()}

    @check(50, recorded=True)
    def test_50_all_reduce(self):
        for launcher in self.launchers():
            self.assertEqual({"True"}, self.all_reduce(launcher))

    @check(51, recorded=True)
    def test_51_rank_0_says_that_it_is_the_server(self):
        for launcher in self.launchers():
            job = self.run_one(launcher, ["--standalone", "--nproc-per-node", 2], {"PYTHON_EXEC": launcher.python},
                               SERVER_AT_RANK_0, private=False, timeout=120 * jobs.SLOW, ahead=True)
            job.follower.refresh()
            self.assertEqual(["0", "1"], sorted(line["value"] for line in job.journal.find("read")))

    @check(52, recorded=True)
    def test_52_store_of_worker_0(self):
        for launcher in self.launchers():
            self.assertEqual({"False"}, self.all_reduce(launcher, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, ahead=True))


if __name__ == "__main__":
    contract.main()
