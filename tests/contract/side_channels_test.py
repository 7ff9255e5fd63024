#!/usr/bin/env python3
"""Checks 95 to 99: events, log level, watchdog, health check, NUMA."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, Expect, Row, check  # noqa: E402

EVENT = {"name", "source", "timestamp", "metadata"}
METADATA = {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state", "total_run_time",
            "rdzv_backend", "raw_error", "metadata", "agent_restarts", "duration_ms"}

TABLE = [
    Row(96, "configuration_is_shown", ("W",), env={"LOGLEVEL": "INFO"}, both=Expect(
        0, workers=1, err=tuple(rf"{name}\s*[:=]" for name in ("nproc_per_node", "run_id", "rdzv_backend", "rdzv_endpoint")))),
    Row(98, "health_check_port_is_no_number", ("W",), Expect(0, workers=1), env={"TORCHELASTIC_HEALTH_CHECK_PORT": "x"}),
    Row(99, "no_gpu_to_be_near", ("--numa-binding", "node", "W"), differs=Differs(51),
        ours=Expect(1, workers=0, err=("(?i)numa",)), theirs=Expect(1, workers=0, err=("Error",))),
]
# Asks for its own death in a moment, as torch's timer client does, and waits for it. The reader of the pipe
# may not be there yet.
EXPIRE = """import stat, time
path = os.environ["TORCHELASTIC_TIMER_FILE"]
for attempt in range(50):
    try:
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        break
    except OSError:
        signal.sigtimedwait({signal.SIGUSR2}, 0.1)
expires = __import__("datetime").datetime.now().timestamp() + 0.2
probe.tell("timer", fifo=stat.S_ISFIFO(os.stat(path).st_mode), path=path, expires=time.monotonic() + 0.2)
os.write(fifo, (json.dumps({"version": 1, "pid": os.getpid(), "scope_id": "s", "expiration_time": expires,
                            "signal": signal.SIGKILL}) + "\\n").encode())
os.close(fifo)
probe.tell()
while True: signal.pause()
"""


@contract.rows(TABLE)
class SideChannels(contract.ContractCase):
    @check(95, recorded=True)
    def test_95_events_on_the_console(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            ended = job.run(["--event-log-handler", "console", "--nproc-per-node", 1, "W"])
            self.assertEqual(0, ended.status, ended.err)
            events = self.events_in(ended.err.splitlines())
            for event in events:
                self.assertEqual(EVENT, set(event))
                self.assertLessEqual(METADATA, set(event["metadata"]))
                self.assertRegex(event["metadata"]["run_id"], "none" if launcher is jobs.PINNED else "[0-9a-f-]{36}")
            for state in ("RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "SUCCEEDED"):
                self.assertIn(state, [name for name, _ in self.shapes(events)])
            for torchrun in contract.TORCHRUNS if job.ours and contract.JUDGED else ():
                recorded, = self.record(torchrun)
                self.assertEqual(self.shapes(self.events_in(recorded["nodes"]["node"]["stderr"])), self.shapes(events))

    @staticmethod
    def events_in(lines):
        return [json.loads(line) for line in lines if line.startswith("{")]

    @staticmethod
    def shapes(events):
        return sorted((event["name"].rpartition(".")[2], event["source"]) for event in events)

    @check(96, recorded=True)
    def test_96_success_is_quiet(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            ended = job.run(["--standalone", "W"])
            self.assertEqual((0, "", ""), (ended.status, ended.out, ended.err))

    @check(97, recorded=True, differs=Differs(46))
    def test_97_watchdog(self):
        """The worker is killed when its timer expires; torchrun kills itself too and leaves the FIFO behind."""
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            node = job.start([job.script(EXPIRE)], env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
            worker, = job.await_workers(1, alive=[node])
            timer, = job.journal.find("timer")
            self.assertTrue(timer["fifo"])
            ended = job.end(node)
            self.assertEqual(1 if job.ours else 137, ended.status, ended.err)
            self.assertEqual(not job.ours, os.path.exists(timer["path"]))
            if job.ours:
                self.assertRegex(ended.err, rf"exitcode  : -9 +\(pid: {worker['pid']}\)")
                # Bound: 0.5 s after the expiry on an idle machine, and the report.
                self.assertLess(node.started + ended.took, timer["expires"] + 2 * jobs.SLOW)


if __name__ == "__main__":
    contract.main()
