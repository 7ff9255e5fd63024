#!/usr/bin/env python3
"""Checks 81 to 94: nodes that come, go, fail and wait for each other."""

import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, check  # noqa: E402

WAIT = "probe.wait()\n"
# Bound of everything that ours does at once.
SOON = 5 * jobs.SLOW


class RendezvousCase(contract.ContractCase):
    def pair(self, launcher, nnodes, *options, static=False):
        """(job, nodes, workers) of a job whose two nodes run one waiting worker each; node 0 hosts."""
        job = self.job(launcher)
        job.port = jobs.free_port()
        def words(rank):
            place = ["--nnodes", nnodes, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", job.port]
            return [*(place if static else job.c10d(nnodes, job.port, is_host=int(rank == 0))), *options, script]
        script = job.script(WAIT)
        job.words = words(1)  # for nodes that come later
        nodes = [job.start(words(rank), name=f"node{rank}") for rank in (0, 1)]
        return job, nodes, job.await_workers(2, alive=nodes, world=2)

    def worker_of(self, job, node, lines):
        """The one of these workers that this launcher started."""
        return next(line for line in lines if self.parent_launcher(line["pid"], {agent.pid for agent in job.agents}) == node.pid)

    def parent_launcher(self, pid, launchers):
        while pid > 1 and pid not in launchers:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as source:
                pid = int(source.read().rpartition(")")[2].split()[1])
        return pid

    def all_end(self, job, nodes, status=0, timeout=None):
        for node in nodes:
            ended = job.end(node, timeout)
            self.assertEqual(status, ended.status, f"{node.name}: {ended.err}")

    def ended_within(self, node, seconds):
        try:
            node.wait(seconds)
        except jobs.TimelineError:
            return False
        return True


class Forming(RendezvousCase):
    @check(81, recorded=True)
    def test_81_too_few_nodes(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            ended = job.run([*job.c10d(2, jobs.free_port(), join_timeout=3), job.script("")])
            self.assertEqual(1, ended.status, ended.err)
            self.assertRegex(ended.err, "(?i)time")
            self.assertTrue(2.9 <= ended.took <= (8 * jobs.SLOW if job.ours else launcher.patience), ended.took)

    @check(82, recorded=True)
    def test_82_last_call(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            node = job.start([*job.c10d("1:2", jobs.free_port(), last_call_timeout=2), "W"])
            self.assertEqual(0, job.end(node).status)
            line, = job.told()
            self.assertEqual((0, 1), (line["rank"], line["world"]))
            self.assertTrue(1.9 <= line["t"] - node.started <= (6 * jobs.SLOW if job.ours else launcher.patience))

    @check(83, recorded=True, differs=Differs(2))
    def test_83_second_node_joins_later(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            words = [*job.c10d("1:2", jobs.free_port(), last_call_timeout=1), job.script(WAIT)]
            first = job.start(words, name="first")
            job.await_workers(1, alive=[first], world=1)
            second = job.start(words, name="second")
            if job.ours:
                both = job.await_workers(2, alive=[first, second], world=2)
                self.assertEqual([0, 0], [line["attempt"] for line in both])
                job.finish(both)
            self.all_end(job, (first, second), 0 if job.ours else 1)

    @check(90, recorded=True)
    def test_90_nobody_listens(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            port, nobody = jobs.silent_port()
            with nobody:
                ended = job.run([*job.c10d(2, port, is_host=0, read_timeout=5), job.script("")])
            self.assertEqual(1, ended.status)
            self.assertIn(str(port), ended.err)
            self.assertTrue(4.9 <= ended.took <= (12 * jobs.SLOW if job.ours else launcher.patience), (ended.took, ended.err))

    @check(92, recorded=True)
    def test_92_static_port_is_taken(self):
        for launcher in self.launchers():
            with socket.socket() as holder:
                holder.bind(("0.0.0.0", 0))
                holder.listen()
                port = holder.getsockname()[1]
                job = self.job(launcher)
                ended = job.run(["--master-port", port, "W"])
            self.assertEqual((1, []), (ended.status, job.told()))
            self.assertIn(str(port), ended.err)
            self.assertLess(ended.took, 2 * jobs.SLOW if job.ours else launcher.patience)


class Failing(RendezvousCase):
    @check(84, recorded=True, differs=Differs(12))
    def test_84_one_count_for_all(self):
        for launcher in self.launchers():
            job, nodes, before = self.pair(launcher, 2, "--max-restarts", 3)
            failing = self.worker_of(job, nodes[1], before)
            fault = time.monotonic()
            os.kill(failing["pid"], signal.SIGUSR2)
            after = job.await_workers(2, after=fault, alive=nodes, world=2)
            self.assertEqual([1, 1] if job.ours else [0, 1], sorted(line["attempt"] for line in after))
            job.finish(after)
            self.all_end(job, nodes)

    @check(85, recorded=True, differs=Differs(5, 6))
    def test_85_one_node_fails_for_good(self):
        for launcher in self.launchers():
            job, nodes, before = self.pair(launcher, 2)
            os.kill(self.worker_of(job, nodes[1], before)["pid"], signal.SIGUSR2)
            self.assertEqual(1, job.end(nodes[1]).status)
            if job.ours:
                self.all_end(job, nodes[:1], 1, SOON)
                self.assertRegex(job.text("node0.stderr"), r"exitcode  : 3 ")
            else:  # It runs on; and would wait 300 s for its peer when its workers are done.
                self.assertFalse(self.ended_within(nodes[0], 10))

    @check(93, recorded=True, differs=Differs(50))
    def test_93_static_nodes_restart_together(self):
        for launcher in self.launchers():
            job, nodes, before = self.pair(launcher, 2, "--max-restarts", 2, static=True)
            fault = time.monotonic()
            os.kill(before[1]["pid"], signal.SIGUSR2)
            count = 2 if job.ours else 1
            after = job.await_workers(count, after=fault, alive=nodes)
            self.assertEqual([(rank, 1) for rank in range(2)][-count:], [(line["rank"], line["attempt"]) for line in after])
            job.finish(after if job.ours else [before[0], *after])
            self.all_end(job, nodes)

    @check(94, recorded=True, waits=True)
    def test_94_nodes_end_at_different_times(self):
        for launcher in self.launchers():
            job, nodes, workers = self.pair(launcher, 2)
            job.finish(workers[:1])
            self.assertFalse(self.ended_within(nodes[0], 10), "it waits for the other")
            job.finish(workers[1:])
            self.all_end(job, nodes)
            if job.ours:  # torchrun's second node finds the first one's store broken now and then.
                self.assertNotRegex(job.text("node0.stderr") + job.text("node1.stderr"), "(?i)error|lost|broken")

    @check(94, recorded=True, differs=Differs(15))
    def test_94_signal_while_others_are_at_work(self):
        """A node that is done ends at once on TERM, and the others go on."""
        for launcher in self.launchers():
            job, nodes, workers = self.pair(launcher, 2)
            done = self.worker_of(job, nodes[1], workers)
            others = [line for line in workers if line is not done]
            done_end = os.pidfd_open(done["pid"])
            job.finish([done])
            self.assertTrue(jobs.wait_readable(done_end, launcher.patience))
            os.close(done_end)
            self.assertFalse(self.ended_within(nodes[1], 1))
            nodes[1].signal(signal.SIGTERM)
            if job.ours:
                job.end(nodes[1], SOON)
                job.finish(others)
                self.all_end(job, nodes[:1])
            else:
                self.assertFalse(self.ended_within(nodes[1], 5))


class Membership(RendezvousCase):
    @check(86, recorded=True, differs=Differs(4, why="a replacement starts at once, not when heartbeats have expired"))
    def test_86_replacement(self):
        for launcher in self.launchers():
            job, nodes, before = self.pair(launcher, "2", "--max-restarts", 3)
            left = self.worker_of(job, nodes[1], before)
            nodes[1].signal(signal.SIGTERM)
            self.assertEqual(1, job.end(nodes[1]).status)
            asked = time.monotonic()
            replacement = job.start(job.words, name="replacement")
            if job.ours:
                after = job.await_workers(2, after=asked, alive=[nodes[0], replacement], world=2, timeout=SOON)
                self.assertEqual([left["rank"]], [line["rank"] for line in after
                                                  if self.parent_launcher(line["pid"], {replacement.pid}) == replacement.pid])
                job.finish(after)
                self.all_end(job, (nodes[0], replacement))
            else:
                self.assertFalse(self.ended_within(nodes[0], 5))
                self.assertEqual([], [line for line in job.told() if line["t"] > asked])

    @check(87, recorded=True, differs=Differs(3, 4))
    def test_87_rank_0_is_killed(self):
        """Rank 0 and the rendezvous are on different nodes."""
        for launcher in self.launchers():
            job = self.job(launcher)
            port = jobs.free_port()
            words = [*job.c10d("1:2", port), "--max-restarts", 3]
            conf = "last_call_timeout=5,is_host="
            # ddprun: a claim makes it rank 0; torchrun: the least address as text.
            host = job.start([*words, "--rdzv-conf", conf + "1", "--local-addr", "localhost",
                              *(["--node-rank", 1] if job.ours else []), job.script(WAIT)], name="host")
            first = job.start([*words, "--rdzv-conf", conf + "0", "--local-addr", "127.0.0.1",
                               *(["--node-rank", 0] if job.ours else []), job.script(WAIT)], name="first")
            before = job.await_workers(2, alive=[host, first], world=2)
            self.assertEqual(first.pid, self.parent_launcher(before[0]["pid"], {first.pid, host.pid}))
            fault = time.monotonic()
            first.signal(signal.SIGKILL)
            if job.ours:
                after = job.await_workers(1, after=fault, alive=[host], world=1, timeout=SOON)
                self.assertEqual([0], [line["rank"] for line in after])
                job.finish(after)
                self.all_end(job, [host])
            else:
                self.assertFalse(self.ended_within(host, 5), "torchrun doesn't notice a lost node")
                fault = time.monotonic()
                job.signal_workers(before[1:], signal.SIGUSR2)
                if launcher is jobs.NEWEST:  # It takes rank 0 over, once its own worker has failed.
                    job.finish(job.await_workers(1, after=fault, alive=[host], world=1))
                self.all_end(job, [host], 1 if launcher is jobs.PINNED else 0)

    @check(88, recorded=True, differs=Differs(34))
    def test_88_spare(self):
        for launcher in self.launchers():
            job, nodes, workers = self.pair(launcher, 2)
            spare = job.start(job.words, name="spare")
            if job.ours:
                job.say_of(spare, "(?i)spare", [*nodes, spare])
            else:
                self.assertFalse(self.ended_within(spare, 10))
            job.finish(workers)
            self.all_end(job, nodes)
            self.assertEqual(0 if job.ours else 1, job.end(spare).status)

    @check(89, recorded=True, differs=Differs(9, why="the error says how the job ended"))
    def test_89_too_late(self):
        """The job has failed for good, and one of its nodes has not gone yet."""
        for launcher in self.launchers():
            job, nodes, workers = self.served_pair() if launcher.ours else self.pair(launcher, 2)
            if job.ours:  # A spare that doesn't take the verdict: so the job is not forgotten yet.
                spare = job.start(job.words, name="spare")
                job.say_of(spare, "(?i)spare", [*nodes, spare])
                spare.signal(signal.SIGSTOP)
            os.kill(self.worker_of(job, nodes[1], workers)["pid"], signal.SIGUSR2)
            self.assertEqual(1, job.end(nodes[1]).status)
            late = job.run(job.words, name="late")
            self.assertEqual(1, late.status, late.err)
            self.assertRegex(late.err, "the job.* has ended .*exited with code 3" if job.ours else "RendezvousClosedError")
            self.assertLess(late.took, 2 * jobs.SLOW if job.ours else launcher.patience)

    def served_pair(self):
        """Like pair(), with a standalone service, which outlives the job."""
        job = self.job(jobs.OURS)
        job.port = jobs.free_port()
        service = job.start(["rendezvous", "--listen", f"127.0.0.1:{job.port}"], name="service")
        job.words = [*job.c10d(2, job.port, is_host=0), job.script(WAIT)]
        nodes = [job.start(job.words, name=f"node{rank}") for rank in (0, 1)]
        return job, nodes, job.await_workers(2, alive=[service, *nodes], world=2)


class Sharing(RendezvousCase):
    def job_of_id(self, job, run_id, port, count):
        """(nodes, their workers) of a c10d job of `count` nodes at this endpoint."""
        words = ["--nnodes", count, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", run_id,
                 job.script("probe.tell(id=os.environ['TORCHELASTIC_RUN_ID'])\nprobe.wait()\n")]
        nodes = [job.start(words, name=f"{run_id}{node}") for node in range(count)]
        return nodes, job.await_workers(count, alive=nodes, id=run_id)

    @check(91, recorded=True, differs=Differs(28, why="`ddprun rendezvous` serves many jobs"), unsteady=("stderr",))
    def test_91_two_jobs_at_one_endpoint(self):
        """The first job's end is nothing to the second; in torchrun that dies with the first one's store."""
        for launcher in self.launchers():
            job = self.job(launcher)
            port = jobs.free_port()
            if job.ours:
                service = job.start(["rendezvous", "--listen", f"127.0.0.1:{port}"], name="service")
                job.say_of(service, str(port), [service])
            count = 2 if job.ours else 1
            first, first_workers = self.job_of_id(job, "a", port, count)
            second, second_workers = self.job_of_id(job, "b", port, count)
            job.finish(first_workers)
            self.all_end(job, first)
            if job.ours:
                self.assertFalse(self.ended_within(second[0], 1))
                job.finish(second_workers)
            self.all_end(job, second, 0 if job.ours else 1)

    @check(91, differs=Differs(28, why="an agent's own service is for its job alone: the second is refused at once"))
    def test_91_no_job_latches_on_to_another(self):
        for launcher in self.launchers():
            if not launcher.ours:
                continue
            job = self.job(launcher)
            port = jobs.free_port()
            first, workers = self.job_of_id(job, "a", port, 2)
            second = job.run([*job.c10d(2, port), job.script("")], name="second")
            self.assertEqual(1, second.status)
            self.assertRegex(second.err, "run id 'a'")
            self.assertLess(second.took, 2 * jobs.SLOW)
            job.finish(workers)
            self.all_end(job, first)


if __name__ == "__main__":
    contract.main()
