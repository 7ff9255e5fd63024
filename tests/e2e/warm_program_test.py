#!/usr/bin/env python3
"""Programs with the C++ runtime are started ahead, and become the next workers."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, free_port  # noqa: E402
from seeds import drawn_seed  # noqa: E402
from timeline import parent_of  # noqa: E402
from warm_case import KilledAtRandom, WarmTestCase  # noqa: E402

SEED = drawn_seed()
KILLS = 1000 if os.environ.get("DDPRUN_TEST_WHOLE") == "1" else 30
WORKER = os.path.join(os.path.dirname(DDPRUN), "..", "tests", "rejoin_worker")
# Variables of one worker, or of one generation.
OWN = ("DDPRUN_AGENT", "DDPRUN_GENERATION", "DDPRUN_PROGRESS", "DDPRUN_WORKER_TAG", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE",
       "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID")


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii") as source:
        return source.read().strip()


class ProgramTestCase(WarmTestCase):
    def start(self, *wishes, program=WORKER, place=("--standalone",), warm=("--warm", "on"), options=()):
        return self.bed.run("agent", [*place, "--nproc_per_node", 2, "--max_restarts", 9, *warm, *options, "--event_log",
                                      self.bed.events.path, "--no_python", program, self.bed.journal.path, *wishes])

    def start_ready(self, *wishes, **options):
        """The agent, when its program waits to become workers."""
        agent = self.start("parks", *wishes, **options)
        self.ready(alive=[agent])
        return agent

    def end(self, agent, workers):
        self.bed.finish(workers)
        self.assert_status(0, agent)


class Restarts(ProgramTestCase):
    def test_the_next_workers_are_forked(self):
        agent = self.start_ready("plain")
        keeper = self.bed.event("agent_start")["keeper"]
        self.bed.workers(1, 2, alive=[agent])  # the first one may be ready to park before the second is started
        self.assertEqual([False, False], self.starts(1))
        for generation in (1, 2, 3):
            workers = self.restart(agent, generation, 2)
            self.assertEqual([True, True], self.starts(generation + 1))
            self.assertEqual([keeper, keeper], [parent_of(worker["pid"]) for worker in workers])
            self.assertEqual([0, 1], sorted(worker["rank"] for worker in workers))
        start = self.bed.event("warm_start", generation="2")
        self.assertEqual(("2", "0", ""), (start["warm"], start["cold"], start["why_cold"]))
        self.end(agent, workers)

    def test_ps_tells_workers_from_what_waits(self):
        """All of them have one command line."""
        agent = self.start_ready("plain")
        workers = self.restart(agent, 1, 2)
        self.assertEqual([True, True], self.starts(2))
        self.assertEqual({name_of(worker["pid"]) for worker in workers}, {os.path.basename(WORKER)[:15]})
        self.assertEqual("ddprun-warm", name_of(self.parked()))
        self.end(agent, workers)

    def test_modules_to_import_ahead_are_nothing_to_a_program(self):
        agent = self.start("plain", options=["--preload", "decimal"])
        workers = self.restart(agent, 1, 2)
        self.assertEqual([False, False], self.starts(2))
        self.assertEqual([], self.bed.events.find("warm_stale"))
        self.end(agent, workers)

    def test_twin_whose_program_does_not_say_that_it_can(self):
        agent = self.start("plain")
        workers = self.restart(agent, 1, 2)
        self.assertEqual([False, False], self.starts(2))
        self.assertIn("workers start cold: their program has not said that it can be started ahead", agent.text())
        self.assertEqual([], self.bed.events.find("warm_ready"))
        self.end(agent, workers)

    def test_twin_that_is_cold(self):
        """No option asks for it, and no survivors would wait."""
        agent = self.start("parks", "plain", warm=())
        workers = self.restart(agent, 1, 2)
        self.assertEqual([None, None], self.starts(2))
        self.assertEqual([], self.bed.events.find("warm_start"))
        self.end(agent, workers)

    def test_a_script_that_executes_the_program_is_not_started_ahead(self):
        script = self.bed.write("run.sh", f"#!/bin/sh\nexec {WORKER} \"$@\"\n", 0o755)
        agent = self.start("parks", "plain", program=script)
        workers = self.restart(agent, 1, 2)
        self.assertEqual([False, False], self.starts(2))
        self.end(agent, workers)

    def test_only_who_is_missing_is_started_where_survivors_go_on(self):
        agent = self.start_ready()
        first = self.bed.workers(1, 2, alive=[agent])
        self.bed.event("worker_can_rejoin", count=2, alive=[agent])
        os.kill(first[1]["pid"], signal.SIGKILL)
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["pid"], second[0]["pid"])
        started = self.bed.event("worker_started", generation=2)
        self.assertEqual((second[1]["pid"], True), (started["worker_pid"], started["warm"]))
        self.end(agent, second)

    def test_it_is_so_by_itself_where_survivors_go_on(self):
        agent = self.start_ready(warm=())
        # The first worker to start says that the program can be forked, perhaps before the second one starts.
        self.assertNotIn(True, self.starts(1))
        first = self.bed.workers(1, 2, alive=[agent])
        self.bed.event("worker_can_rejoin", count=2, alive=[agent])
        os.kill(first[1]["pid"], signal.SIGKILL)
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["pid"], second[0]["pid"])
        self.assertTrue(self.bed.event("worker_started", generation=2)["warm"])
        start = self.bed.event("warm_start", generation=2, alive=[agent])
        self.assertEqual(("1", "0"), (start["warm"], start["cold"]))
        self.end(agent, second)
        self.assertNotIn("start cold", agent.text())
        # The next job of it knows from the start.
        before = len(self.bed.journal.find("worker"))
        agent = self.start("parks", warm=())
        self.bed.wait(lambda: len(self.bed.journal.find("worker")) == before + 2, "two workers", alive=[agent])
        self.assertEqual([True, True], self.starts(1)[-2:])
        self.end(agent, self.bed.journal.find("worker")[before:])

    def test_twin_that_shall_be_cold(self):
        agent = self.start("parks", warm=("--warm", "off"))
        first = self.bed.workers(1, 2, alive=[agent])
        self.bed.event("worker_can_rejoin", count=2, alive=[agent])
        os.kill(first[1]["pid"], signal.SIGKILL)
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertNotIn("warm", self.bed.event("worker_started", generation=2))
        self.end(agent, second)

    def test_the_next_job_begins_with_it(self):
        agent = self.start_ready("plain")
        self.end(agent, self.bed.workers(1, 2, alive=[agent]))
        before = len(self.bed.journal.find("worker"))
        agent = self.start("parks", "plain")
        self.bed.wait(lambda: len(self.bed.journal.find("worker")) == before + 2, "two workers", alive=[agent])
        self.assertEqual([True, True], self.starts(1)[-2:])
        self.end(agent, self.bed.journal.find("worker")[before:])


class Sameness(ProgramTestCase):
    """Nothing in a worker shows how it was started."""

    def observe(self, *options, warm=()):
        before = len(self.bed.journal.find("worker"))
        agent = self.start("parks", "plain", "observes", warm=warm, options=options)
        self.bed.wait(lambda: len(self.bed.journal.find("worker")) == before + 2, "two workers", alive=[agent])
        workers = self.bed.journal.find("worker")[before:]
        if warm:
            self.ready(alive=[agent])
            self.assertEqual([bool(before)] * 2, self.starts(1)[-2:])
        self.end(agent, workers)
        return [self.of_any_run(worker["seen"]) for worker in sorted(workers, key=lambda worker: worker["rank"])]

    @staticmethod
    def of_any_run(seen):
        for name in ("environment", "environment_of_main", "block"):
            seen[name] = [variable for variable in seen[name] if variable.partition("=")[0] not in OWN]
        seen["cgroup"] = seen["cgroup"].count("/")
        for number, target in seen["descriptors"].items():
            seen["descriptors"][number] = re.sub(r"/pts/\d+|/logs/.*", "", target)
        return seen

    def check(self, *options):
        self.observe(*options, warm=("--warm", "on"))  # it learns
        cold = self.observe(*options)
        warm = self.observe(*options, warm=("--warm", "on"))
        for rank, (one, other) in enumerate(zip(cold, warm)):
            self.assertEqual(str(rank), one["rank"])
            for name, value in one.items():
                self.assertEqual(value, other[name], name)

    def test_a_worker_sees_no_difference(self):
        self.check()

    def test_a_worker_whose_output_goes_to_files_sees_no_difference(self):
        self.check("--redirects", "3", "--log_dir", self.bed.path("logs"))


class Failures(ProgramTestCase):
    """Whatever happens to the program that waits, workers start."""

    def test_it_is_killed_and_parked_again(self):
        agent = self.start_ready("plain")
        self.bed.workers(1, 2, alive=[agent])
        os.kill(self.parked(), signal.SIGKILL)
        self.assertEqual("was killed by SIGKILL", self.bed.event("warm_lost", alive=[agent])["how"])
        self.ready(count=2, alive=[agent])
        workers = self.restart(agent, 1, 2)
        self.assertEqual([True, True], self.starts(2))
        self.end(agent, workers)

    def test_it_is_killed_with_a_worker(self):
        agent = self.start_ready("plain")
        workers = self.bed.workers(1, 2, alive=[agent])
        parked = self.parked()
        os.kill(workers[1]["pid"], signal.SIGKILL)
        os.kill(parked, signal.SIGKILL)
        self.end(agent, self.bed.workers(2, 2, alive=[agent]))

    def test_all_of_it_goes_with_an_agent_that_is_killed(self):
        agent = self.start_ready("plain")
        self.bed.workers(1, 2, alive=[agent])
        waiting = [self.parked()]
        for _ in range(2):  # the one between, and the next worker
            with open(f"/proc/{waiting[-1]}/task/{waiting[-1]}/children", encoding="ascii") as children:
                waiting.append(int(children.read()))
        pidfds = [os.pidfd_open(pid) for pid in waiting]
        agent.signal(signal.SIGKILL)
        for pidfd in pidfds:
            self.assertTrue(select.select([pidfd], [], [], 5 * SLOW)[0])
            os.close(pidfd)

    def test_one_that_holds_more_than_it_may_is_ended(self):
        agent = self.start("parks", "plain", options=["--warm_memory", "4KiB"])
        self.assertIn("their program, started ahead, holds", self.bed.event("warm_off", alive=[agent])["why"])
        workers = self.restart(agent, 1, 2)
        self.assertEqual([False, False], self.starts(2))
        self.end(agent, workers)

    def test_none_is_kept(self):
        agent = self.start("parks", "plain", options=["--warm_memory", "0"])
        self.end(agent, self.bed.workers(1, 2, alive=[agent]))
        self.assertIn("--warm_memory 0 leaves no program ready", agent.text())


class Kills(ProgramTestCase, KilledAtRandom):
    def test_at_random_moments(self):
        self.check(lambda options: self.start("parks", "plain", options=options), SEED, KILLS)


class BuiltAnew(ProgramTestCase):
    """The file of the program changes while the job runs."""

    def setUp(self):
        super().setUp()
        self.program = self.bed.path("program")
        shutil.copy2(WORKER, self.program)

    def put(self, path):
        os.rename(path, self.program)

    def test_the_new_one_is_executed_and_parked(self):
        agent = self.start_ready("plain", program=self.program)
        shutil.copy(WORKER, self.bed.path("new"))
        self.put(self.bed.path("new"))
        self.restart(agent, 1, 2)
        self.assertEqual([False, False], self.starts(2))
        self.bed.event("warm_old", alive=[agent])
        self.ready(count=2, alive=[agent])
        workers = self.restart(agent, 2, 2)
        self.assertEqual([True, True], self.starts(3))
        self.end(agent, workers)

    def test_one_that_never_said_so_is_not_started_ahead(self):
        agent = self.start_ready("plain", program=self.program)
        log = self.bed.path("ran")
        self.put(self.bed.write("new", f"#!/bin/sh\necho rank ${{RANK:-none}} >> {log}\nexec {WORKER} \"$@\"\n", 0o755))
        self.restart(agent, 1, 2)
        self.bed.event("warm_stale", alive=[agent])
        workers = self.restart(agent, 2, 2)
        self.assertEqual([False, False], self.starts(3))
        self.end(agent, workers)
        with open(log, encoding="ascii") as lines:
            self.assertEqual(["rank 0", "rank 0", "rank 1", "rank 1"], sorted(lines.read().split("\n")[:-1]))


class Seen(ProgramTestCase):
    def test_status_tells_how_workers_started(self):
        port = free_port()
        agent = self.start_ready("plain", place=("--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"))
        workers = self.restart(agent, 1, 2)
        for _ in range(int(20 * PATIENCE)):  # it comes with the next heartbeat
            shown = subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{port}", "--json"], capture_output=True,
                                   text=True, check=True, env=self.bed.environment).stdout
            warm = json.loads(shown)["jobs"][0]["nodes"][0].get("warm") or {}
            if warm.get("warm_workers") == 2 or select.select([agent.pidfd], [], [], 0.05)[0]:
                break
        self.assertEqual((2, 0), (warm.get("warm_workers"), warm.get("cold_workers")))
        self.assertLess(0, int(warm["parked_bytes"]))
        self.end(agent, workers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
