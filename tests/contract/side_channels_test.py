#!/usr/bin/env python3
"""Checks 95 to 99: events, log level, watchdog, health check, NUMA."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
from contract import ORDINARY, Differs, Expect, Row, check  # noqa: E402

EVENT = {"name", "source", "timestamp", "metadata"}
METADATA = {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state", "total_run_time",
            "rdzv_backend", "raw_error", "metadata", "agent_restarts", "duration_ms"}

TABLE = [
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
    @check(96, compare=ORDINARY)
    def test_96_success_is_quiet(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            ended = job.run(["--standalone", "W"])
            self.assertEqual((0, "", ""), (ended.status, ended.out, ended.err))


if __name__ == "__main__":
    contract.main()
