#!/usr/bin/env python3
"""A peer without token or certificate changes nothing, learns nothing, and keeps no node out of the job."""

import json
import os
import subprocess
import sys

import job
from bed import FREED_MB, ROOT, SLOW, read_until

HOSTILE = os.path.join(ROOT, "tests", "support", "hostile.py")
TOKEN = "sesam-oeffne-dich"
# Each of 45 kinds five times; with --all a thousand calls and more, which takes minutes.
CALLS = 1000 if os.environ.get("DDPRUN_TEST_WHOLE") == "1" else 225
PAGE = 29480
IDLE = 10000
# The service's memory limit with any number of unauthenticated peers. Without them it has 30 MB, under AddressSanitizer 130 MB.
RSS_MB = 400 if FREED_MB == 0 else 500 + FREED_MB


class HostileTestCase(job.ClusterTestCase):
    hosts = 3

    def certs(self, name):
        process = self.bed.run(f"certs-{name}", ["certs", self.bed.path(name)])
        self.assert_status(0, process)
        return self.bed.path(name)

    def secret(self, name):
        return self.bed.write(name, TOKEN + "\n", mode=0o600)

    def with_token(self, *options):
        return ("--token_file", self.secret("token"), *options)

    def with_page(self, *options):
        return ("--status_page", f"0.0.0.0:{PAGE}", *options)

    def start_two(self, options, nnodes="2"):
        logs = ("--redirects", "3", "--log_dir", self.bed.path("logs"))
        self.agents, self.generation = self.start_all(2, nnodes, options=(*options, *logs), conf="last_call_timeout=0.1"
                                                      if nnodes != "2" else "")
        self.options = options

    def asking(self):
        """What commands need of the options of a launch."""
        return [word for at, option in enumerate(self.options) if option in ("--token_file", "--tls_dir")
                for word in self.options[at:at + 2]]

    def ask(self, command, *options, tries=1):
        endpoint = ("--rdzv_endpoint", f"127.0.0.1:{job.PORT}")
        for _ in range(tries):
            self.asked = getattr(self, "asked", 0) + 1
            asker = self.bed.run(f"ask{self.asked}", [command, *endpoint, *self.asking(), *options], host=1)
            if asker.wait(20 * SLOW) == 0:
                break
        self.assert_status(0, asker)
        return asker.text()

    def ports(self, host, agent):
        """The agent's own door for other nodes, and for Python's store."""
        listening = subprocess.run(self.cluster.command(host, ["ss", "-Hltnp"]), capture_output=True, text=True,
                                   check=True).stdout
        return [line.split()[3].rsplit(":", 1)[1] for line in listening.splitlines() if f"pid={agent.pid}," in line]

    def facts(self):
        """What must not change: the job without its times, and what happened to it. Stalls are the machine's."""
        status = json.loads(self.ask("status", "--json"))
        status = status[0] if isinstance(status, list) else status
        (of_job,) = status["jobs"]
        nodes = [(node["node_id"], node["state"], node.get("group_rank")) for node in of_job["nodes"]]
        events = [json.loads(line)["event"] for line in self.ask("events", "--json").splitlines()]
        happened = [event for event in events if event != "stall"]
        return (of_job["phase"], of_job["generation"], of_job["restart_count"], nodes), happened

    def call(self):
        """CALLS calls from n3, or more, at every door in turn: {kind: what was answered}."""
        doors = [f"n1:{job.PORT}", f"n1:{PAGE}", *(f"n1:{port}" for port in self.ports(1, self.agents[0])),
                 *(f"n2:{port}" for port in self.ports(2, self.agents[1]))]
        self.assertGreaterEqual(len(doors), 4, doors)
        kinds = 45
        each = -(-CALLS // kinds)
        caller = self.bed.start_process(
            "caller", self.cluster.command(3, [sys.executable, HOSTILE, "calls", "job", self.certs("foreign"), str(each),
                                               *doors]),
            env=self.bed.environment, output=self.bed.path("caller.out"))
        self.assert_status(0, caller, 600 * SLOW)
        told = json.loads(caller.text())
        self.assertGreaterEqual(len(told), 30)
        self.assertGreaterEqual(sum(len(answers) for answers in told.values()), CALLS)
        return told

    def leaks(self, told):
        """Kinds of calls whose answers have what only members know."""
        (_, _, _, nodes), _ = self.before
        words = [TOKEN, "worker.py", "node_joined", *(node[0] for node in nodes), self.bed.folder]
        found = {}
        for kind, answers in told.items():
            # A peer that names the job learns nothing when an answer repeats the name.
            secret = words + (['"job"', "'job'", "job job"] if "other" in kind else [])
            hits = {word for word in secret for answer in answers if word in answer}
            if hits:
                found[kind] = hits
        return found


class Calls(HostileTestCase):
    def check(self, *options):
        self.start_two(self.with_page("--status_page_token_file", self.secret("password"), *options))
        self.before = self.facts()
        told = self.call()
        self.assertEqual({}, self.leaks(told))
        self.assertEqual(self.before, self.facts())
        self.finish(self.agents, self.generation, 2)
        return told

    def check_with_tls(self, *options):
        told = self.check("--tls_dir", self.certs("tls"), *options)
        for kind, answers in told.items():
            self.assertNotIn("application/grpc", "".join(answers), f"{kind}: no call is so much as heard")

    def test_with_token_and_tls(self):
        self.check_with_tls(*self.with_token())

    def test_with_tls_alone(self):
        self.check_with_tls()

    def test_with_a_token(self):
        told = self.check(*self.with_token())
        self.assertIn("this job needs a token", "".join(told["join"]))
        self.assertIn("wrong or missing token", "".join(told["store"]))
        self.assertIn("this page has a password", "".join(told["HTTP/1 metrics"]))

    def test_twin_without_either(self):
        self.start_two(self.with_page())
        self.before = self.facts()
        leaks = self.leaks(self.call())
        self.assertIn("HTTP/1 status", leaks)
        self.assertIn("status", leaks)
        self.assertIn("events", leaks)
        self.assertIn("join", leaks)


class FullTestCase(HostileTestCase):
    """A member joins while strangers on n3 take all that they can have."""

    def service(self):
        children = subprocess.run(["pgrep", "-P", str(self.agents[0].pid), "ddprun-service"], capture_output=True,
                                  text=True, check=True)
        return int(children.stdout)

    def rss_mb(self):
        with open(f"/proc/{self.service()}/status", encoding="utf-8") as status:
            return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024

    def check_joining(self, options, words):
        """`words`: what hostile.py is to do, once the service is there."""
        self.agents = [self.start(1, "1:2", options=options, conf="last_call_timeout=0.1")]
        self.generation = self.bed.workers(1, 1, alive=self.agents)[0]["generation"]
        self.options = options
        before = self.rss_mb()
        stays, until = os.pipe()
        crowd = self.bed.start_process(
            "crowd", self.cluster.command(3, ["prlimit", "--nofile=20000:20000", sys.executable, HOSTILE, *words()]),
            env=self.bed.environment, stdin=stays, stdout=subprocess.PIPE)
        os.close(stays)
        read_until(crowd.stdout, b"there", 120 * SLOW)
        self.agents.append(self.start(2, "1:2", options=options, conf="last_call_timeout=0.1"))
        self.generation = self.bed.next_workers(self.generation, 2, 2, alive=self.agents, timeout=60 * SLOW)[0]["generation"]
        # A command that only asks is an unauthenticated peer, too: it may be turned away, and doesn't try again by itself.
        self.assertIn("job job: running", self.ask("status", tries=20))
        after = self.rss_mb()
        self.assertLess(after, RSS_MB, f"{before:.0f} MB before")
        self.assertFalse(self.bed.events.find("node_lost"))
        os.close(until)
        self.assert_status(0, crowd)
        print(f"service: {before:.0f} MB, with the crowd {after:.0f} MB; {crowd.stdout.read().decode().strip()}", file=sys.stderr)
        self.finish(self.agents, self.generation, 2)


class Crowds(FullTestCase):
    """10,000 connections that say nothing, and new ones as fast as they are thrown out."""

    def check(self, *options):
        self.check_joining(options, lambda: ["idle", str(IDLE), f"n1:{job.PORT}"])

    def test_with_tls(self):
        self.check(*self.with_token("--tls_dir", self.certs("tls")))

    def test_with_a_token(self):
        self.check(*self.with_token())


class Floods(FullTestCase):
    """At the service, at the door of its node's agent and at the status page, as fast as a process can: calls and Joins with a
    wrong token, connections that say nothing; at the service also a thousand streams a connection."""

    def flood(self):
        return ["flood", "job", f"n1:{job.PORT}", f"n1:{PAGE}", *(f"n1:{port}" for port in self.ports(1, self.agents[0]))]

    def test_with_tls(self):
        self.check_joining(self.with_page(*self.with_token("--tls_dir", self.certs("tls"))), self.flood)

    def test_with_a_token(self):
        self.check_joining(self.with_page(*self.with_token()), self.flood)


if __name__ == "__main__":
    job.main()
