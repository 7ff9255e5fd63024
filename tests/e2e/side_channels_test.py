#!/usr/bin/env python3
"""Watchdog, health checks, torchrun's events and LOGLEVEL, as one sees them from outside."""

import json
import os
import signal
import socket
import stat
import sys
import unittest
import urllib.error
import urllib.request
from time import time as wall_clock  # what the protocol wants

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, WORKER, BedTestCase  # noqa: E402

# What torch's FileTimerClient does, without torch; then waits like worker.py's `wait`.
TIMER_WORKER = '''import json, os, signal, sys
from time import time as wall_clock  # what the protocol wants
sys.path.insert(0, os.environ["SUPPORT"])
from worker import write_line
rank = os.environ["RANK"]
fifo = os.environ.get("TORCHELASTIC_TIMER_FILE")
def send(seconds, scope="step", pid=None, number=9):
    fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, (json.dumps({"version": 1, "pid": pid or os.getpid(), "scope_id": scope, "signal": number,
                              "expiration_time": seconds if seconds < 0 else wall_clock() + seconds}) + "\\n").encode())
    os.close(fd)
WAITED = {signal.SIGUSR1}
def polite():
    WAITED.add(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
for word in sys.argv[2:]:
    only, _, call = word.rpartition("@")
    if only and only not in (rank, rank + "/" + os.environ["TORCHELASTIC_RESTART_COUNT"]):
        continue
    eval(call)
write_line(sys.argv[1], "worker", rank=int(rank), generation=int(os.environ["DDPRUN_GENERATION"]), fifo=fifo)
signal.sigwait(WAITED)
'''


class Watchdog(BedTestCase):
    def job(self, name, calls, *options, env=None):
        script = self.bed.write("timer.py", TIMER_WORKER)
        support = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
        return self.bed.run(
            name, ["--nproc_per_node", 2, *options, "--event_log", self.bed.events.path, script, self.bed.journal.path,
                   *calls],
            env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "SUPPORT": support, **(env or {})})

    def test_an_expired_timer_kills_its_worker_alone_and_counts_as_a_failure(self):
        agent = self.job("expired", ["1/0@send(0.2)"], "--max_restarts", 1)
        fifo = self.bed.workers(1, 1, alive=[agent])[0]["fifo"]
        died = self.bed.event("worker_exit", generation=1, local_rank=1, alive=[agent])
        self.assertEqual(9, died["signal"])
        self.assertEqual(0, died["swept"])
        # The other one is stopped like after any failure, and the job goes on.
        self.assertEqual(15, self.bed.event("worker_exit", generation=1, local_rank=0, alive=[agent])["signal"])
        self.bed.finish(self.bed.workers(2, 2, alive=[agent]))
        self.assert_status(0, agent)
        self.assertIn("watchdog timer 'step' expired", agent.text())
        self.assertFalse(os.path.exists(fifo))

    def test_it_is_quick_and_without_a_budget_the_job_fails(self):
        agent = self.job("quick", ["0@send(0.05)"])
        expired = self.bed.event("timer_expired", alive=[agent])
        died = self.bed.event("worker_exit", local_rank=0)
        self.assertLess(died["t_seen"] - expired["t"], 0.5 * SLOW)
        self.assert_status(1, agent)

    def test_released_and_renewed_timers_and_strangers_hurt_nobody(self):
        soon = 0.3 * SLOW  # within this the next action follows
        agent = self.job("released", [f"0@send({soon})", "0@send(-1)", f"1@send({soon})", "1@send(600)",
                                      f"1@send(0.01, pid={os.getpid()})", "1@send(0.01, 'no signal', number=0)"])
        workers = self.bed.workers(1, 2, alive=[agent])
        self.assertTrue(stat.S_ISFIFO(os.stat(workers[0]["fifo"]).st_mode))
        # A timer that is set last and does expire ends the wait; the earlier ones are due by then.
        with open(workers[0]["fifo"], "w", encoding="utf-8") as fifo:
            fifo.write("garbage\n" * 10 + "x" * 10000 + "\n" + json.dumps(
                {"pid": workers[0]["pid"], "scope_id": "last", "expiration_time": wall_clock() + soon + 0.1}) + "\n")
        expired = self.bed.event("timer_expired", alive=[agent])
        self.assertIn("'last'", expired["why"])
        self.assert_status(1, agent)
        self.assertIn("belongs to no worker", agent.text())

    def test_a_worker_that_ends_well_after_its_timer_has_failed(self):
        agent = self.job("polite", ["0@polite()", "0@send(0.05, number=15)"])
        self.assert_status(1, agent)
        self.assertEqual(0, self.bed.event("worker_exit", local_rank=0)["exit_code"])

    def test_the_fifos_path_can_be_given_and_is_never_somebody_elses_file(self):
        path = self.bed.path("given")
        os.mkfifo(path)  # left by an agent that was killed
        agent = self.job("given", [], env={"TORCHELASTIC_TIMER_FILE": path})
        workers = self.bed.workers(1, 2, alive=[agent])
        self.assertEqual(path, workers[0]["fifo"])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        self.assertFalse(os.path.exists(path))
        taken = self.bed.write("taken", "precious")
        agent = self.job("taken", [], env={"TORCHELASTIC_TIMER_FILE": taken})
        self.assert_status(1, agent)
        self.assertIn("is there and is no FIFO", agent.text())
        self.assertTrue(os.path.exists(taken))

    def test_without_the_variable_there_is_none(self):
        agent = self.job("off", [], env={"TORCHELASTIC_ENABLE_FILE_TIMER": "yes"})
        workers = self.bed.workers(1, 2, alive=[agent])
        self.assertIsNone(workers[0]["fifo"])
        self.bed.finish(workers)
        self.assert_status(0, agent)


class Health(BedTestCase):
    def start(self, name="ddprun", port="0"):
        agent = self.bed.run(name, ["--nproc_per_node", 2, "--event_log", self.bed.events.path,
                                    os.path.join(os.path.dirname(__file__), "..", "support", "worker.py"),
                                    self.bed.journal.path], env={"TORCHELASTIC_HEALTH_CHECK_PORT": port})
        workers = self.bed.workers(1, 2, alive=[agent])
        return agent, workers

    def get(self, port, path="/healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5 * SLOW) as answer:
            return answer.status, json.load(answer)

    def test_an_agent_that_lives_says_so(self):
        agent, workers = self.start()
        port = self.bed.event("health_checks")["port"]
        self.bed.event("started", alive=[agent])
        status, body = self.get(port)
        self.assertEqual(200, status)
        self.assertEqual(("ok", "running", 1, 2), tuple(
            body[name] for name in ("status", "state", "generation", "workers_running")))
        self.assertRegex(body["run_id"], r"^[0-9a-f-]{36}$")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get(port, "/else")
        self.assertEqual(404, refused.exception.code)
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_slow_and_senseless_clients_hurt_nobody(self):
        agent, workers = self.start()
        port = self.bed.event("health_checks")["port"]
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for number, client in enumerate(silent):
            try:
                client.sendall((b"\0\xff\x16" * number) + b"GET /")
            except ConnectionError:
                pass  # one that made room for a later one
        flood = socket.create_connection(("127.0.0.1", port))
        try:
            flood.sendall(b"x" * (1 << 20))
        except ConnectionError:
            pass
        self.assertEqual(200, self.get(port)[0])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        for client in (*silent, flood):
            client.close()

    def test_a_stopped_agent_does_not_answer(self):
        agent, workers = self.start()
        port = self.bed.event("health_checks")["port"]
        agent.signal(19)
        with self.assertRaises((TimeoutError, urllib.error.URLError)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=0.3)
        agent.signal(18)
        self.assertEqual(200, self.get(port)[0])
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_a_port_that_cannot_be_had_is_no_reason_to_fail(self):
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            for port, text in ((str(taken.getsockname()[1]), "no health checks"), ("many", "is no port"), ("", "is no port")):
                self.bed.journal.lines.clear()
                agent, workers = self.start(f"port-{port}", port)
                self.bed.finish(workers)
                self.assert_status(0, agent)
                self.assertIn(text, agent.text())


class Console(BedTestCase):
    def run_job(self, name, options, script, env=None):
        path = self.bed.write(f"{name}.py", script)
        agent = self.bed.run(name, [*options, path], env=env)
        return agent

    def test_events_are_json_lines(self):
        agent = self.run_job("events", ["--nproc_per_node", 2, "--event_log_handler", "console"], "")
        self.assert_status(0, agent)
        events = [json.loads(line) for line in agent.text().splitlines() if line.startswith("{")]
        states = [(event["source"], event["metadata"]["state"]) for event in events]
        self.assertEqual([("AGENT", "RENDEZVOUS"), ("AGENT", "ASSIGN_WORKER_RANKS"), ("WORKER", "START"),
                          ("WORKER", "START"), ("WORKER", "SUCCEEDED"), ("WORKER", "SUCCEEDED"),
                          ("AGENT", "SUCCEEDED")], states)
        for event in events:
            self.assertEqual(f"torchelastic.worker.status.{event['metadata']['state']}", event["name"])
            self.assertIn("group_world_size", json.loads(event["metadata"]["metadata"]))

    def test_without_the_option_there_are_none_and_at_the_default_level_nothing(self):
        agent = self.run_job("silent", [], "", env={"LOGLEVEL": ""})
        self.assert_status(0, agent)
        self.assertEqual("", agent.text())

    def test_info_shows_the_settings(self):
        agent = self.run_job("info", ["--rdzv_id", "job7"], "", env={"LOGLEVEL": "INFO"})
        self.assert_status(0, agent)
        for name in ("nproc_per_node", "run_id", "rdzv_backend", "rdzv_endpoint", "rdzv_configs", "max_restarts"):
            self.assertIn(f"  {name} ", agent.text())
        self.assertIn("job7", agent.text())

    def test_run_path_records_what_the_script_raises(self):
        script = "import sys, os\nprint(sys.argv[1:], __name__, sys.path[0] == os.path.dirname(__file__))\n"
        agent = self.bed.run("path", ["--run_path", self.bed.write("p.py", script), "a", "${local_rank}"])
        self.assert_status(0, agent)
        self.assertEqual("['a', '0'] __main__ True\n", agent.text())
        raising = self.bed.write("r.py", "raise ValueError('no luck')\n")
        agent = self.bed.run("raises", ["--run_path", raising])
        self.assert_status(1, agent)
        self.assertIn("ValueError: no luck", agent.text().split("Root Cause")[-1])
        leaving = self.bed.write("l.py", "import sys\nsys.exit(0)\n")
        self.assert_status(0, self.bed.run("leaves", ["--run_path", leaving]))


class RunPath(BedTestCase):
    """Workers of --run_path wait at their end for the others of their node, as torchrun's do."""

    def job(self, name, *options, script=WORKER, words=("wait",)):
        return self.bed.run(name, ["--nproc_per_node", 2, "--event_log", self.bed.events.path, *options, script,
                                   self.bed.journal.path, *words])

    def test_who_has_finished_waits_for_the_others(self):
        agent = self.job("waits", "--run_path")
        workers = self.bed.workers(1, 2, alive=[agent])
        self.bed.finish(workers[:1])
        finished = self.bed.event("worker_finished", alive=[agent])
        self.assertEqual(0, finished["local_rank"])
        self.assertEqual([], self.bed.events.find("worker_exit"))
        self.bed.finish(workers[1:])
        self.assert_status(0, agent)
        self.bed.event("worker_exit", count=2)
        ends = self.bed.events.find("worker_exit")
        last = max(line["t"] for line in self.bed.events.find("worker_finished"))
        self.assertEqual([0, 0], [line["exit_code"] for line in ends])
        self.assertGreater(min(line["t_seen"] for line in ends), last)

    def test_without_the_option_it_just_ends(self):
        agent = self.job("ends")
        workers = self.bed.workers(1, 2, alive=[agent])
        self.bed.finish(workers[:1])
        self.assertEqual(0, self.bed.event("worker_exit", alive=[agent])["local_rank"])
        self.bed.finish(workers[1:])
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("worker_finished"))

    def test_a_failure_ends_the_wait(self):
        agent = self.job("fails", "--run_path", "--max_restarts", 1)
        workers = self.bed.workers(1, 2, alive=[agent])
        self.bed.finish(workers[:1])
        self.bed.event("worker_finished", alive=[agent])
        self.bed.signal_workers(workers[1:], signal.SIGUSR2)
        # The other's end lets it go, and the agent ends it for that: which of the two is sooner is open.
        self.assertIn(self.bed.event("worker_exit", local_rank=0, alive=[agent])["signal"], (0, signal.SIGTERM))
        # The same with a killed worker: the other one, in the next generation, waits for its own peers.
        workers = self.bed.workers(2, 2, alive=[agent])
        self.bed.finish(workers[1:])
        self.bed.event("worker_finished", local_rank=1, alive=[agent])
        self.bed.signal_workers(workers[:1], signal.SIGKILL)
        self.assert_status(1, agent)
        self.assertIn("exitcode  : -9", agent.text().split("Root Cause")[-1])

    def test_a_workers_child_is_not_held(self):
        """The child's parent may wait for it: the two would wait for ever."""
        script = self.bed.write("forks.py", "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n")
        agent = self.job("forks", "--run_path", script=script)
        self.assert_status(0, agent)
        self.bed.event("worker_finished", count=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
