#!/usr/bin/env python3
"""What several jobs, or several services, have in one --state_dir."""

import os
import signal
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, BedTestCase, free_port  # noqa: E402


class StateDirTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.bed.path("state")
        self.file = os.path.join(self.folder, "journal.db")

    def sql(self, text):
        database = sqlite3.connect(self.file)
        with database:
            rows = database.execute(text).fetchall()
        database.close()
        return rows

    def start_service(self, name):
        return self.bed.run(name, ["rendezvous", "--listen", f"127.0.0.1:{self.port}", "--state_dir", self.folder,
                                   "--event_log", self.bed.events.path])


class ADamagedRecord(StateDirTestCase):
    def start_job(self, name):
        return self.bed.agent(name, ["--nnodes", 1, "--nproc_per_node", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                     f"127.0.0.1:{self.port}", "--rdzv_conf", "is_host=0", "--rdzv_id", name])

    def start_again(self, damage):
        """Two jobs of one service, which is killed and started again. Returns (the first, the other, its worker, the service)."""
        self.port = free_port()
        service = self.start_service("service")
        first, other = self.start_job("first"), self.start_job("other")
        workers = self.bed.workers(1, 2, alive=[service, first, other])
        self.bed.event("started", run_id="first")
        self.bed.event("started", run_id="other")
        service.signal(signal.SIGKILL)
        service.wait(20 * SLOW)
        if damage:
            self.sql("UPDATE jobs SET record = x'0a' WHERE run_id = 'first'")
        again = self.start_service("service-again")
        self.bed.event("recovered", run_id="other", alive=[again, other])
        worker = next(line for line in workers if line["environment"]["TORCHELASTIC_RUN_ID"] == "other")
        return first, other, worker, again

    def test_costs_its_own_job_alone(self):
        first, other, worker, service = self.start_again(damage=True)
        self.assertIn("warning: the record of job 'first' doesn't match its checksum: this job is to be started anew, other jobs "
                      f"go on. Its bytes are kept in the table 'damaged' of '{self.file}'", service.text())
        self.assert_status(1, first)
        self.bed.finish([worker])
        self.assert_status(0, other)
        self.bed.follower.refresh()
        self.assertEqual(1, len(self.bed.events.find("generation", run_id="other")))
        service.signal(signal.SIGTERM)
        self.assert_status(0, service)
        self.assertEqual([("first", b"\n")], self.sql("SELECT run_id, record FROM damaged"))

    def test_twin_that_is_sound(self):
        first, other, _, _ = self.start_again(damage=False)
        self.bed.event("recovered", run_id="first", alive=[first, other])
        self.bed.finish(self.bed.workers(1, 2))
        self.assert_status(0, first)
        self.assert_status(0, other)


class TwoServices(StateDirTestCase):
    def start(self):
        return self.bed.agent("agent", ["--nnodes", 1, "--nproc_per_node", 1, "--max_restarts", 3, "--rdzv_backend", "c10d",
                                        "--rdzv_endpoint", "127.0.0.1:0", "--rdzv_conf", "is_host=1", "--state_dir", self.folder])

    def lock(self, holder):
        """Has the journal as another service has it, of `holder`."""
        os.mkdir(self.folder)
        database = sqlite3.connect(self.file, isolation_level=None)
        self.addCleanup(database.close)
        database.execute("BEGIN EXCLUSIVE")
        with open(self.file + ".holder", "w", encoding="utf-8") as sink:
            sink.write(f"process 1 on {holder}\n1\n")
        return database

    def test_a_lock_that_outlives_its_machine_is_waited_for(self):
        """As with NFS: the server knows only after a lease that a machine is gone."""
        held = self.lock("another-machine")
        agent = self.start()
        said = "belongs to another service that runs (process 1 on another-machine)"
        self.bed.wait(lambda: said in agent.text() and "waiting for it, 2m at most" in agent.text(), "the line for the user",
                      alive=[agent])
        held.close()
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)

    def test_twin_on_this_machine_is_refused_at_once(self):
        self.lock(os.uname().nodename)
        agent = self.start()
        self.assert_status(1, agent)
        self.assertIn(f"belongs to another service that runs (process 1 on {os.uname().nodename}): end that one, or name another",
                      agent.text())

    def test_who_was_taken_over_ends(self):
        """Where locks don't hold between machines, the later service has the job."""
        agent = self.start()
        worker = self.bed.workers(1, 1, alive=[agent])
        taken = self.bed.write("holder", "process 1 on another-machine\n1\n")
        os.rename(taken, self.file + ".holder")
        self.bed.signal_workers(worker, signal.SIGKILL)  # its restart must be recorded
        self.assert_status(1, agent)
        self.assertIn("the rendezvous service, a child of this agent, lost the job: another service has it", agent.text())
        self.bed.follower.refresh()
        self.assertEqual([], self.bed.events.find("service_restarted"))
        self.assertEqual({1}, {line["generation"] for line in self.bed.journal.find("worker")})
        self.assertEqual(1, len(self.sql("SELECT run_id FROM jobs")), "the other one's record is left alone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
