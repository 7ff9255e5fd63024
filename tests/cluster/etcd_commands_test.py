#!/usr/bin/env python3
"""Commands about a job whose record is in etcd: they find its service by etcd's members alone, wherever it is, and go on with
its successor when another node takes the job over.
"""

import os
import re
import signal
import subprocess
import sys
import unittest
import unittest.mock

import asking
import job
from bed import DDPRUN, ROOT
from etcd import Authority, EtcdCluster, etcd_is_there
from scrapes import Scrapes
from terminal import Terminal

SERVICE_PORT = 29555
MARKING = os.path.join(ROOT, "tests", "support", "marking_worker.py")
MEETING = 29777
WHOLE = os.environ.get("DDPRUN_TEST_WHOLE") == "1"
TAKEOVERS = 20 if WHOLE else 3
# As in own_machine_test.py; logs: of the rank on the service's host, and of that on the other node.
MATRIX = """
job    given  place      status  top    events  logs-service  logs-node  drain
-      -      service    ok      ok     ok      ok            there      ok
-      -      node       ok      ok     ok      there         ok         there
-      -      elsewhere  ok      ok     ok      there         there      there
token  -      service    ok      ok     ok      ok            token      ok
token  -      node       token   token  token   token         ok         token
token  -      elsewhere  token   token  token   token         token      token
token  token  service    ok      ok     ok      ok            ok         ok
token  token  node       ok      ok     ok      ok            ok         ok
token  token  elsewhere  ok      ok     ok      ok            ok         ok
"""


@unittest.skipUnless(etcd_is_there(), "there is no etcd here (Debian's etcd-server and etcd-client)")
class EtcdCommands(asking.Asking):
    hosts = 4

    def use(self, **etcd):
        """A cluster of etcd on hosts 1 to 3."""
        self.etcd = EtcdCluster(hosts=self.cluster, **etcd)
        self.addCleanup(self.etcd.stop)
        self.meet = ["--rdzv_backend", "etcd", "--rdzv_endpoint", self.etcd.endpoints]

    def holder(self, agents, count=1):
        """The host of the `count`-th service, and that service's process."""
        started = self.bed.event("service_started", count=count, alive=agents)
        self.assertEqual(str(SERVICE_PORT), str(started["port"]), "the port that was asked for")
        host = next(int(agent.name.removeprefix("agent")) for agent in agents if agent.pid == started["pid"])
        return host, started["service_pid"]

    def metrics(self):
        """What the page on host 4 says to Prometheus; "" = it has no service to ask."""
        read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/metrics', timeout=30).read().decode())"
        return subprocess.run(self.cluster.command(4, [sys.executable, "-c", read]), check=False, text=True,
                              capture_output=True).stdout

    def check_rows(self, protection, workers, holder, state):
        places = {"service": holder, "node": 3 - holder, "elsewhere": 4}
        logs = {f"logs-{place}": ("logs", f"rank{workers[host]['rank']}") for place, host in places.items() if host in workers}
        commands = {**asking.COMMANDS, **logs}
        for line, row in asking.rows_of(MATRIX, protection):
            askers = {command: self.ask(places[row["place"]], *words, *self.meet, "--rdzv_id", self.run_id,
                                        *self.credentials(row["given"]))
                      for command, words in commands.items()}
            for command, asker in askers.items():
                self.check(f"{line} {state}", command.split("-")[0], row[command], asker)

    def check_all(self, protection):
        agents, workers = self.start_two(protection, *self.meet, "--service_port", SERVICE_PORT)
        holder, service = self.holder(agents)
        self.check_rows(protection, workers, holder, "quiet")
        frozen = self.etcd.processes[self.etcd.leader()]
        frozen.send_signal(signal.SIGSTOP)
        os.kill(service, signal.SIGKILL)
        # No service runs now; the command waits for the next one.
        asker = self.ask(4, "status", *self.meet, "--rdzv_id", self.run_id, *self.credentials(protection))
        self.check("while nobody serves the job", "status", "ok", asker)
        holder, _ = self.holder(agents, count=2)
        self.bed.event("recovered", alive=agents)
        # The new service's events don't name the nodes that joined before it took over.
        with unittest.mock.patch.dict(asking.ALLOWED, events=(0, "recovered")):
            self.check_rows(protection, workers, holder, "after a takeover, while etcd's leader is frozen")
        frozen.send_signal(signal.SIGCONT)
        stranger = self.ask(4, "status", *self.meet, "--rdzv_id", "nosuchjob")
        self.assert_status(1, stranger)
        self.assertIn("no job 'nosuchjob' in etcd at", stranger.text())
        stopped = self.ask(holder, "stop", *self.meet, "--rdzv_id", self.run_id)
        self.assert_status(0, stopped)
        for agent in agents:
            self.assert_status(1, agent)

    def test_a_job_that_trusts_its_network(self):
        self.use()
        self.check_all("-")

    def test_a_job_with_a_token_in_an_etcd_with_tls(self):
        authority = Authority(self.bed.path("authority"))
        self.use(authority=authority)
        certificate, key = authority.sign("ddprun")
        self.meet += ["--rdzv_conf", f"protocol=https,ca_cert={authority.ca},ssl_cert={certificate},ssl_cert_key={key}"]
        self.check_all("token")

    def test_etcds_leader_is_frozen(self):
        """The short form of check_all's rows: what is answered wherever the service is, which may move beside other tests."""
        self.use()
        agents, workers = self.start_two("-", *self.meet)
        self.bed.event("service_started", alive=agents)
        frozen = self.etcd.processes[self.etcd.leader()]
        frozen.send_signal(signal.SIGSTOP)
        for command in ("status", "top"):
            asker = self.ask(4, *asking.COMMANDS[command], *self.meet, "--rdzv_id", self.run_id)
            self.check("etcd's leader is frozen", command, "ok", asker)
        self.assertIsNone(frozen.poll())
        frozen.send_signal(signal.SIGCONT)
        self.end(agents, workers)

    def test_jobs_that_nobody_has_named(self):
        """All are shown, also beside one whose service hangs; a command about one job takes the only one, or names them."""
        self.use(members=1)
        none = self.ask(4, "status", *self.meet)
        self.assert_status(1, none)
        self.assertIn("no job is under '/ddprun/' in etcd at", none.text())
        names = {host: f"{self.run_id}{host}" for host in (1, 2)}
        agents = {host: self.bed.agent(f"agent{host}", ["--nnodes", 1, *self.meet, "--rdzv_id", name], host=host)
                  for host, name in names.items()}
        workers = {line["host"]: line for line in self.bed.workers(1, 2, alive=agents.values())}
        for words in (("stop",), ("events",), ("logs", "rank0"), ("top",), ("drain", "n1"), ("status", "--status_page", 0)):
            several = self.ask(4, *words, *self.meet)
            self.assert_status(1, several)
            self.assertRegex(several.text(), rf"several in etcd; .*(\n  ddprun .* … --rdzv_id {self.run_id}[12] .*){{2}}")
        services = {line["pid"]: line["service_pid"] for line in self.bed.events.find("service_started")}
        frozen = services[agents[2].pid]
        os.kill(frozen, signal.SIGSTOP)
        shown = self.ask(4, "status", *self.meet, "--timeout", 1)
        self.assert_status(0, shown)
        os.kill(frozen, signal.SIGCONT)
        self.assertRegex(shown.text(), f"(?m)^job {names[1]}: ")
        self.assertRegex(shown.text(), f"(?m)^ddprun: job {names[2]}: ")
        self.bed.finish([workers["n2"]])
        self.assert_status(0, agents[2])
        self.assert_status(0, self.ask(4, "events", *self.meet))
        self.assert_status(0, self.ask(1, "stop", *self.meet))
        self.assert_status(1, agents[1])

    def test_no_counter_falls_at_a_takeover(self):
        """The counters are those of a job that trains, as the page on another host shows them."""
        self.use()
        about = [*self.meet, "--rdzv_id", self.run_id]
        agents = [self.bed.run(f"agent{host}", ["--nnodes", 2, *about, "--service_port", SERVICE_PORT, "--event_log",
                                                self.bed.events.path, MARKING, self.bed.journal.path, MEETING, 5, 1000000],
                               host=host, env=self.folders[host]) for host in (1, 2)]
        self.holder(agents)
        page = self.ask(4, "status", "--status_page", 8080, *about)
        self.bed.wait(lambda: "status page on http://127.0.0.1:8080/" in page.text(), "a page", alive=[page])
        scrapes = Scrapes(self.bed, "http://127.0.0.1:8080/", lambda command: self.cluster.command(4, command))
        training = f'ddprun_job_seconds_total{{run_id="{self.run_id}",cause="training"}}'
        trained = 0
        for count in range(1, TAKEOVERS + 2):
            _, service = self.holder(agents, count)
            self.bed.wait(lambda before=trained: scrapes.last().get(training, 0) > before + 1, "training", alive=agents)
            trained = scrapes.last()[training]
            if count <= TAKEOVERS:
                os.kill(service, signal.SIGKILL)
        self.assertEqual([], scrapes.falls())
        self.assertEqual([], self.bed.events.find("round_closing"))

    def test_followers_go_on_when_the_machine_of_the_service_is_lost(self):
        """A member of etcd is lost with the machine."""
        self.use()
        agents, workers = self.start_two("token", *self.meet, "--nnodes", "1:2", "--max_restarts", 1)
        host = next(int(agent.name.removeprefix("agent")) for agent in agents
                    if agent.pid == self.bed.event("service_started", alive=agents)["pid"])
        left = agents[2 - host]
        about = [*self.meet, "--rdzv_id", self.run_id, "--token", "geheim"]
        events = self.ask(4, "events", "--follow", *about)
        logs = self.ask(4, "logs", "--follow", *about)
        top = Terminal(self.bed, self.cluster.command(4, [DDPRUN, "top", "--interval", "0.2", *about]),
                       env={**self.bed.environment, "TERM": "xterm"})
        self.addCleanup(top.close)
        page = self.ask(4, "status", "--status_page", 8080, *about)
        self.bed.wait(lambda: "status page on http://127.0.0.1:8080/" in page.text(), "a page", alive=[page])
        self.assertIn(f'ddprun_job_generation{{run_id="{self.run_id}"}} 1', self.metrics())
        self.bed.wait(lambda: "generation=1" in events.text(), "the first generation", alive=[events])
        self.bed.wait(lambda: logs.text().count("I am a worker") == 2, "two workers", alive=[logs])
        top.wait(lambda screen: "2 nodes" in "".join(screen), "both nodes")
        self.cluster.power_off(host)
        second = self.bed.next_workers(1, 1, 1, alive=[left])
        self.bed.wait(lambda: "generation=2" in events.text(), "the second generation", alive=[events])
        self.bed.wait(lambda: logs.text().count("I am a worker") == 3, "its worker", alive=[logs])
        top.wait(lambda screen: re.search(r"gen(eration)? 2", "".join(screen)), "the second generation")
        for _ in range(1000):  # each one a whole process: until the page has heard of the new service
            if f'ddprun_job_generation{{run_id="{self.run_id}"}} 2' in self.metrics():
                break
        else:
            self.fail("the page shows no second generation")
        self.bed.finish(second)
        self.assert_status(0, left)
        for follower in (events, logs, page):
            self.assert_status(0, follower)


if __name__ == "__main__":
    job.main()
