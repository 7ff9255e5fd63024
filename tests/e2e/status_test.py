#!/usr/bin/env python3
"""What people and monitors see of a running job: `ddprun status`, the page of --status_page, and its metrics (docs/STATUS.md)."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import CACHE, DDPRUN, PATIENCE, ROOT, SLOW, WORKER, BedTestCase, free_port, read_until  # noqa: E402
from browser import CHROMIUM, Browser  # noqa: E402

FAKE_DRIVER = os.path.join(os.path.dirname(os.path.dirname(DDPRUN)), "tests", "fake_nvml")
MARKING = os.path.join(ROOT, "tests", "support", "marking_worker.py")
PROMTOOL = shutil.which("promtool", path=os.path.join(CACHE, "promtool")) or shutil.which("promtool")


class StatusTestCase(BedTestCase):
    def start_job(self, *options, steps=100000, plans=(), page="0", envs=(None, None)):
        """The agents of a job of two nodes with two workers each; the first has the service and its page. `envs`: theirs."""
        self.port, meeting = free_port(), free_port()
        common = ["--nnodes", 2, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_id", "job7",
                  "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--event_log", self.bed.events.path, *options]
        if page:
            common += ["--status_page", page]
        worker = [MARKING, self.bed.journal.path, meeting, 5, steps, *plans]
        self.agents = [self.bed.run(name, [*common, "--rdzv_conf", f"is_host={host}", *worker], env=env)
                       for (name, host), env in zip((("host", 1), ("other", 0)), envs)]
        return self.agents

    def with_gpus(self, name, *lines, **variables):
        """An agent's environment with a driver whose GPUs are those lines (tests/support/fake_nvml.cc)."""
        path = self.bed.write(name, "".join(line + "\n" for line in lines))
        return {"LD_LIBRARY_PATH": FAKE_DRIVER, "FAKE_NVML_GPUS": path, **variables}

    @property
    def url(self):
        return self.bed.event("status_page", alive=self.agents)["url"]

    def wait_for_step(self, step, generation=1):
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=step, attempt=generation - 1)) == 4,
                      f"step {step} of all ranks", alive=self.agents)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10 * SLOW) as answer:
            return answer.read().decode(), answer.headers

    def job(self):
        """None before the first agent has joined."""
        return next(iter(json.loads(self.get("api/v1/status")[0])["jobs"]), None)

    def wait_for_job(self, condition, what):
        """The job as the page sees it, once the condition holds of it: agents report once a second how far they are."""
        def shown():
            job = self.job()
            return job if job is not None and condition(job) else None
        return self.bed.wait(shown, what, alive=self.agents)

    def browser(self):
        chromium = Browser()
        self.addCleanup(chromium.close)
        return chromium

    def wait_for_rates(self, number):
        """The curves of the latest looks, once the last ones have a speed."""
        def shown():
            curves = json.loads(self.get("api/v1/curves")[0])["jobs"]
            rates = curves[0]["latest"]["steps_per_second"][-number:] if curves else []
            return curves[0] if len(rates) == number and None not in rates else None
        return self.bed.wait(shown, "curves", alive=self.agents)

    def wait_until_all_told(self, generation=1):
        def told(job):
            workers = [worker for node in job["nodes"] for worker in node["workers"]]
            return job["generation"] == generation and len(workers) == 4 and all(int(w["step"]) > 1 for w in workers) \
                and "last_step" in job["history"][-1]
        return self.wait_for_job(told, f"steps of all workers of generation {generation}")

    def fail_one(self):
        """Kills a worker; the status of the next generation."""
        self.wait_for_step(100)
        self.wait_until_all_told()
        self.bed.kill_alone(3)
        return self.wait_until_all_told(generation=2)

    def stop(self):
        for agent in self.agents:
            agent.signal(signal.SIGTERM)
        for agent in self.agents:
            agent.wait(20 * SLOW)

    def status(self, *options):
        return subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", *options],
                              capture_output=True, text=True, check=False)


class ServicesPage(StatusTestCase):
    def test_a_fault_and_what_came_of_it(self):
        self.start_job("--max_restarts", 3)
        job = self.fail_one()
        self.assertEqual(["0", "1", "2", "3"], [str(w["rank"]) for node in job["nodes"] for w in node["workers"]])
        self.assertEqual({"train"}, {w["phase"] for node in job["nodes"] for w in node["workers"]})
        first, second = job["history"]
        self.assertIn("SIGKILL", first["end_reason"])
        self.assertGreaterEqual(int(first["last_step"]), 2)
        self.assertGreater(int(first["began_ms_ago"]), int(first["ended_ms_ago"]))
        self.assertLessEqual(int(second["began_ms_ago"]), int(first["ended_ms_ago"]))
        self.assertEqual(("worker_failure", 4, 2), (second["rule"], second["world_size"], second["group_world_size"]))
        self.assertNotIn("ended_ms_ago", second)
        self.stop()

    def test_steps_per_second_are_those_of_the_workers(self):
        self.start_job()
        job = self.wait_for_job(
            lambda job: [node["step_us"] > 0 for node in job["nodes"]] == [True, True], "the time of a step")
        # A step sleeps for 5 ms, which is less than the looks at it are apart. On a busy machine the workers' own lines say more.
        for node in job["nodes"]:
            self.assertGreater(node["step_us"], 5000)
            self.assertLess(int(node["progress_age_ms"]), 5000 * SLOW)
        self.wait_for_step(400)

        def own():
            """Seconds a step of the last hundred, as rank 0 wrote them down."""
            before, last = [line for line in self.bed.journal.find("step") if line["rank"] == 0][-2:]
            return (last["t"] - before["t"]) / (last["step"] - before["step"])
        self.wait_for_job(lambda job: all(0.7 * own() < node["step_us"] / 1e6 < 1.4 * own() for node in job["nodes"]),
                          "the workers' own time of a step")
        self.stop()

    def test_a_page_that_is_opened_late_has_curves(self):
        """No client asks for the status meanwhile."""
        self.start_job()
        self.wait_for_step(100)
        curves = self.wait_for_rates(2)
        for part in ("latest", "whole"):
            self.assertEqual({"ms_ago", "steps_per_second", "loss", "samples_per_second", "gpu_busy"}, set(curves[part]))
            self.assertEqual(1, len({len(values) for values in curves[part].values()}))
            ages = curves[part]["ms_ago"]
            self.assertEqual(sorted(ages, reverse=True), ages)
        # A step sleeps for 5 ms.
        self.assertTrue(all(0 < rate < 200 for rate in curves["latest"]["steps_per_second"][-2:]), curves)
        self.assertEqual({None}, set(curves["latest"]["loss"]))
        self.stop()

    def test_a_program_that_marks_nothing_has_no_steps(self):
        self.start_job(plans=["unmarked"])
        job = self.wait_for_job(lambda job: sum(len(node["workers"]) for node in job["nodes"]) == 4, "all workers")
        self.assertEqual({("unmarked", 0)}, {(w["phase"], w["step"]) for node in job["nodes"] for w in node["workers"]})
        self.assertNotIn("last_step", job["history"][0])
        self.stop()

    def test_read_only_and_from_nowhere_else(self):
        self.start_job()
        text, headers = self.get("")
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        for part in re.findall(r'(?:src|href)="([^"]+)"', text):
            self.assertNotIn("//", part)
            self.assertTrue(self.get(part)[0])
        self.assertEqual("ok\n", self.get("healthz")[0])
        for method, path, status in (("POST", "api/v1/status", 405), ("DELETE", "", 405), ("GET", "etc/passwd", 404)):
            with self.subTest(method=method, path=path):
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(urllib.request.Request(self.url + path, method=method, data=None), timeout=10 * SLOW)
                self.assertEqual(status, caught.exception.code)
        self.stop()

    def test_metrics(self):
        self.start_job()
        self.wait_until_all_told()
        text, headers = self.get("metrics")
        self.assertIn("version=0.0.4", headers["Content-Type"])
        for rank in range(4):
            self.assertRegex(text, rf'(?m)^ddprun_worker_step{{run_id="job7",node="[^"]+",rank="{rank}"}} \d+$')
        self.assertIn('ddprun_job_info{run_id="job7",phase="running"} 1\n', text)
        self.assertRegex(text, r'(?m)^ddprun_build_info{version="[^"]+",compiler="[^"]+"} 1$')
        self.assertRegex(text, r"(?m)^process_start_time_seconds \d{10}(\.\d+)?$")
        if PROMTOOL is not None:
            checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual(("", 0), (checked.stdout + checked.stderr, checked.returncode))
        self.stop()

    def test_loss_and_throughput(self):
        """What workers report is on the page, in status and metrics: a mean of losses, a sum of samples."""
        self.start_job("--max_restarts", 3, plans=["reports"])
        job = self.wait_for_job(lambda job: sum("training" in node for node in job["nodes"]) == 2, "what both nodes report")
        self.assertEqual([{"loss": 1.0, "loss_workers": 2, "samples_per_second": 2000},
                          {"loss": 3.0, "loss_workers": 2, "samples_per_second": 2000}],
                         sorted((node["training"] for node in job["nodes"]), key=lambda told: told["loss"]))
        text = self.get("metrics")[0]
        self.assertIn('ddprun_job_loss{run_id="job7"} 2\n', text)
        self.assertIn('ddprun_job_samples_per_second{run_id="job7"} 4000\n', text)
        self.assertIn("\n  loss 2; 4000 samples/s\n", self.status().stdout)

        def told():
            jobs = json.loads(self.get("api/v1/curves")[0])["jobs"]  # none before the page has looked for the first time
            latest = jobs[0]["latest"] if jobs else {"loss": [], "samples_per_second": []}
            return latest["loss"][-1:] == [2] and latest["samples_per_second"][-1:] == [4000]
        self.bed.wait(told, "curves of both", alive=self.agents)
        # Workers of the next generation report anew.
        self.fail_one()
        self.wait_for_job(lambda job: sum("training" in node for node in job["nodes"]) == 2, "what both nodes report")
        self.stop()

    def test_twin_without_reports(self):
        self.start_job()
        self.wait_until_all_told()
        self.assertFalse(any("training" in node for node in self.job()["nodes"]))
        self.assertNotIn("ddprun_job_loss", self.get("metrics")[0])
        self.assertNotIn("  loss ", self.status().stdout)
        self.stop()

    def test_the_dashboard_asks_for_what_there_is(self):
        """docs/grafana: each expression is PromQL, about metrics that a job with marks has."""
        with open(os.path.join(ROOT, "docs", "grafana", "ddprun.json"), encoding="utf-8") as source:
            board = json.load(source)
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        self.assertGreater(len(expressions), 8)
        self.start_job(plans=["reports"], envs=(self.with_gpus("gpus", "memory_mib=81920;utilization=97"), None))
        self.wait_for_step(100)
        self.wait_for_job(lambda job: all(node["step_us"] > 0 for node in job["nodes"]) and
                          any(node["gpus"] for node in job["nodes"]) and all("training" in node for node in job["nodes"]),
                          "step times and reports of all nodes, GPUs of one")
        text = self.get("metrics")[0]
        for expression in expressions:
            for name in re.findall(r"\bddprun_\w+", expression):
                self.assertIn(f"# TYPE {name} ", text)
        if PROMTOOL is not None:
            rules = {"groups": [{"name": "g", "rules": [{"record": f"r{i}", "expr": e} for i, e in enumerate(expressions)]}]}
            checked = subprocess.run([PROMTOOL, "check", "rules", self.bed.write("rules.yml", json.dumps(rules))],
                                     capture_output=True, text=True, check=False)
            self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)
        self.stop()

    def test_a_port_that_is_taken_is_a_warning(self):
        self.start_job(steps=20, page=f"127.0.0.1:{self.taken_port()}")
        for agent in self.agents:
            self.assert_status(0, agent)
        self.assertIn("warning: the status page can't listen on 127.0.0.1:", self.agents[0].text())

    def taken_port(self):
        holder = socket.socket()
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        self.addCleanup(holder.close)
        return holder.getsockname()[1]

    def test_twin_without_the_option_there_is_no_page(self):
        self.start_job(steps=20, page="")
        for agent in self.agents:
            self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("status_page"))

    def test_a_job_with_a_token_has_one_too(self):
        """The page is for everybody who reaches its address; the service behind it asks for the token."""
        self.start_job("--token", "geheim")
        self.wait_for_step(100)
        self.assertEqual("running", self.job()["phase"])
        self.assertIn("ddprun_", self.get("metrics")[0])
        self.stop()

    def test_with_a_password_only_who_has_it_reads(self):
        secret = self.bed.write("password", "geheim\n", mode=0o600)
        agents = self.start_job("--status_page_token_file", secret, page="0.0.0.0:0")
        self.wait_for_step(100)
        url = self.url.replace("0.0.0.0", "127.0.0.1")
        for path in ("", "api/v1/status", "metrics"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url + path, timeout=10 * SLOW)
            self.assertEqual(401, caught.exception.code)
            self.assertNotIn("job7", caught.exception.read().decode())
            request = urllib.request.Request(url + path, headers={"Authorization": "Bearer geheim"})
            with urllib.request.urlopen(request, timeout=10 * SLOW) as answer:
                self.assertEqual(200, answer.status)
        self.assertNotIn("anybody who can reach", agents[0].text())
        self.stop()

    def test_twin_without_a_password_beyond_the_machine_is_a_warning(self):
        agents = self.start_job(page="0.0.0.0:0")
        url = self.url.replace("0.0.0.0", "127.0.0.1")
        self.bed.wait(lambda: "warning: anybody who can reach" in agents[0].text(), "a warning", alive=agents)
        with urllib.request.urlopen(url + "api/v1/status", timeout=10 * SLOW) as answer:
            self.assertEqual(200, answer.status)
        self.stop()

    def test_one_node_has_a_page_too(self):
        agent = self.bed.agent("agent", ["--standalone", "--nproc_per_node", 1, "--status_page", "localhost:0",
                                         "--rdzv_id", "alone"])
        self.agents = [agent]
        self.assertIn(f"ddprun: status page on {self.url} (metrics: {self.url}metrics)", agent.text())
        workers = self.bed.workers(1, 1, alive=[agent])
        self.wait_for_job(lambda job: job["phase"] == "running", "the job runs")
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_a_port_is_asked_for(self):
        agent = self.bed.agent("agent", ["--nproc_per_node", 1, "--status_page", "host0"])
        self.assert_status(1, agent)
        self.assertIn("--status_page", agent.text())
        self.assertIn("has no port; give PORT or HOST:PORT", agent.text())


class InABrowser(StatusTestCase):
    @unittest.skipIf(CHROMIUM is None, "chromium is not installed")
    def test_the_page_shows_ranks_generations_and_faults(self):
        self.start_job("--max_restarts", 3)
        self.fail_one()
        self.wait_for_rates(2)
        chromium = self.browser()
        curves = "document.querySelector('.course path.line') !== null"
        light, dark = (chromium.picture(self.url, curves, 1000, is_dark) for is_dark in (False, True))
        dom = chromium.ask("document.documentElement.outerHTML")
        self.assertIn("<title>job7: running – ddprun</title>", dom)
        for pattern in (r"<strong>2 </strong>4 ranks on 2 nodes", r"Ended [^<]* ago: [^<]*SIGKILL",
                        r'>0–1</button></td><td data-label="node"[^>]*>[^<]+</td>', r"<dt>restarts</dt><dd>1 of 3</dd>",
                        r'<rect [^>]*class="gap bad"><title>[^<]*SIGKILL', r'<text [^>]*class="bad">rank 3 on [^<]*: SIGKILL<',
                        r'<path d="M[^"]+" class="line">'):
            self.assertRegex(dom, pattern)
        for picture in (light, dark):
            self.assertEqual(b"\x89PNG", picture[:4])
        self.assertNotEqual(light, dark)
        self.stop()

    @unittest.skipIf(CHROMIUM is None, "chromium is not installed")
    def test_an_address_with_the_password_in_it(self):
        """http://user:password@host: fetch() refuses a URL with a password, and the page was empty."""
        secret = self.bed.write("password", "geheim\n", mode=0o600)
        self.start_job("--status_page_token_file", secret)
        self.wait_for_step(100)
        chromium = self.browser()
        title = chromium.value(self.url.replace("://", "://user:geheim@"), "document.title.startsWith('job7')", 1000,
                               "document.title")
        self.assertEqual("job7: running – ddprun", title)
        self.stop()


class StatusCommand(StatusTestCase):
    def test_it_tells_of_steps_and_generations(self):
        self.start_job("--max_restarts", 3)
        self.fail_one()
        text = self.status().stdout
        self.assertRegex(text, r"job job7: running for [^\n]*, generation 2, restarts 1 of 3\n")
        self.assertRegex(text, r"(?m)^ +0 +\S+ +running +2 +\S+ m?s +\d+( to \d+)? +\S+ +train +127.0.0.1$")
        self.assertRegex(text, r"(?m)^ +1  4 ranks on 2 nodes, lasted [^\n]*, steps \d+( to \d+)?(, \d of \d warm)?; began: ")
        self.assertRegex(text, r"(?m)^ +ended [^\n]* ago: [^\n]*SIGKILL")
        self.stop()

    def test_watching_ends_with_the_service(self):
        self.start_job()
        self.wait_for_step(100)
        watcher = self.bed.start_process(
            "status", [DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--watch", "0.1"],
            output=self.bed.path("status.out"))
        self.bed.wait(lambda: watcher.text().count("job job7: running") > 2, "three looks", alive=[watcher])
        self.stop()
        self.assert_status(1, watcher)
        self.assertIn("ddprun: error: ", watcher.text())


class JobsOfThisMachine(BedTestCase):
    """Jobs of one node have no address, but a unix socket: their user's commands find them without an address."""

    def run_command(self, *arguments, status=0):
        result = subprocess.run([DDPRUN, *map(str, arguments)], env=self.bed.environment, capture_output=True, text=True,
                                check=False, timeout=60 * SLOW)
        self.assertEqual(status, result.returncode, result.stderr)
        return result.stdout if status == 0 else result.stderr

    def job_of(self, name):
        """The id of the job whose workers have this word: other tests may have jobs here, too."""
        for job in json.loads(self.run_command("status", "--json"))["jobs"]:
            if f"{self.bed.folder}/{name}" in job["description"]:
                self.assertRegex(job["endpoint"], r"^unix:|:\d+$")
                return job["run_id"]
        return self.fail(f"{name} is not among the jobs")

    def start(self, name, *options):
        options = options or ["--standalone"]
        agent = self.bed.run(name, [*options, "--nproc_per_node", 1, "--event_log", self.bed.path(f"{name}.events"), WORKER,
                                    self.bed.path(name), "wait"])
        journal = self.bed.follower.follow(self.bed.path(name))
        self.bed.wait(lambda: journal.find("worker"), "the worker", alive=[agent])
        return agent

    def test_they_are_found_and_several_are_told_apart(self):
        first, second = self.start("first"), self.start("second")
        ids = {name: self.job_of(name) for name in ("first", "second")}
        text = self.run_command("status")
        for run_id in ids.values():
            self.assertIn(f"job {run_id}: running", text)
        error = self.run_command("events", status=1)
        self.assertIn("which job? There are several on this machine; name one with --rdzv_id, or by", error)
        line = next(line for line in error.splitlines() if ids["first"] in line)
        self.assertRegex(line, rf"^  ddprun events --rdzv_endpoint unix:\S+/service.sock --rdzv_id {re.escape(ids['first'])}  # ")
        for selector in (("--rdzv_id", ids["first"]), ("--rdzv_endpoint", line.split()[3])):
            self.assertIn("node_joined", self.run_command("events", *selector))
        self.assertIn("which job?", self.run_command("stop", status=1))
        said = self.bed.run("stop", ["stop", "--rdzv_id", ids["first"], "--reason", "enough"])
        self.assert_status(0, said)
        self.assertRegex(said.text(), rf"^ddprun: ended job '{re.escape(ids['first'])}' \(.*first.*\) at unix:")
        self.assert_status(1, first)
        self.assertIn("the job was stopped: enough", first.text())
        self.assertFalse(second.ended())
        self.run_command("stop", "--rdzv_id", ids["second"])
        self.assert_status(1, second)
        self.assertIn(f"no job '{ids['second']}' of yours runs on this machine",
                      self.run_command("status", "--rdzv_id", ids["second"], status=1))

    def test_a_job_at_an_address_counts_beside_one_on_a_socket(self):
        """A job at an address used to be overlooked, and a bare stop ended the other job."""
        port = free_port()
        first = self.start("first")
        name = f"second-{self.bed.tag}"  # no other run on this machine has that name
        second = self.start("second", "--nnodes", 1, "--rdzv_id", name, "--rdzv_endpoint", f"127.0.0.1:{port}")
        self.job_of("second")
        error = self.run_command("stop", status=1)
        self.assertIn(f"\n  ddprun stop --rdzv_endpoint 127.0.0.1:{port} --rdzv_id {name}  # ", error)
        self.assertIn(self.bed.path("first"), error)
        self.assertFalse(first.ended() or second.ended())
        self.run_command("stop", "--rdzv_id", name)
        self.assert_status(1, second)
        self.run_command("stop", "--rdzv_id", self.job_of("first"))
        self.assert_status(1, first)

    def test_the_time_for_an_answer_is_the_users(self):
        """Something that takes connections, and says nothing; 1.5 s used to be the end."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            for timeout, least in ((0.5, 0.5), (3, 3)):
                began = time.monotonic()
                endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
                self.run_command("status", "--rdzv_endpoint", endpoint, "--timeout", timeout, status=1)
                took = time.monotonic() - began
                self.assertGreaterEqual(took, least)
                self.assertLess(took, least + 2 * SLOW)

    def test_on_a_terminal_the_user_is_asked(self):
        first, second = self.start("first"), self.start("second")
        ids = {name: self.job_of(name) for name in ("first", "second")}
        master, terminal = os.openpty()
        self.addCleanup(os.close, master)
        asks = subprocess.Popen([DDPRUN, "stop"], stdin=terminal, stderr=terminal, stdout=terminal, env=self.bed.environment)
        os.close(terminal)
        with os.fdopen(os.dup(master), "rb", buffering=0) as words:
            text = read_until(words, rb"or nothing: ", PATIENCE).decode()
            number = re.search(rf"(\d+)\) {re.escape(ids['second'])}: ", text)[1]
            os.write(master, number.encode() + b"\n")
            read_until(words, rb"ended job '" + re.escape(ids["second"]).encode(), PATIENCE)
        self.assertEqual(0, asks.wait(PATIENCE))
        self.assert_status(1, second)
        self.assertFalse(first.ended())
        self.run_command("stop", "--rdzv_id", ids["first"])
        self.assert_status(1, first)

    def test_without_a_job(self):
        """One short line. With a name: other tests have jobs on this machine, too."""
        name = f"absent-{self.bed.tag}"
        for command in ("status", "top", "logs", "events", "stop"):
            error = self.run_command(command, "--rdzv_id", name, status=1)
            self.assertRegex(error, rf"^ddprun: error: no job '{name}' of yours runs on this machine[^\n]*; a service elsewhere "
                                    r"is named with --rdzv_endpoint HOST:PORT\n$", command)

    def test_an_idle_service(self):
        port = free_port()
        service = self.bed.run("service", ["rendezvous", "--listen", f"127.0.0.1:{port}"])
        self.bed.wait(lambda: "rendezvous service on" in service.text(), "the service", alive=[service])
        self.assertIn(f"no job runs at 127.0.0.1:{port}, where the service answers",
                      self.run_command("status", "--rdzv_endpoint", f"127.0.0.1:{port}", status=1))

    def test_a_bare_stop_asks_on_a_terminal(self):
        """Only one job runs, and nobody has named it. Where other tests have jobs meanwhile, it asks which one."""
        job = self.start("only")
        for answer, status, end in ((b"\n", 1, rb"nothing was done"), (b"y\n", 0, rb"ended job '")):
            master, terminal = os.openpty()
            self.addCleanup(os.close, master)
            asks = subprocess.Popen([DDPRUN, "stop"], stdin=terminal, stderr=terminal, stdout=terminal, env=self.bed.environment)
            os.close(terminal)
            with os.fdopen(os.dup(master), "rb", buffering=0) as words:
                asked = read_until(words, rb"only wait .*\[y/N\] |or nothing: ", PATIENCE)
                if b"or nothing: " in asked:
                    asks.kill()
                    asks.wait()
                    self.skipTest("other jobs run on this machine")
                os.write(master, answer)
                read_until(words, end, PATIENCE)
            self.assertEqual(status, asks.wait(PATIENCE))
        self.assert_status(1, job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
