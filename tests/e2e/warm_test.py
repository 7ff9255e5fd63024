#!/usr/bin/env python3
"""Workers that are forked from an interpreter which has imported what they import."""

import os
import select
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, TORCH_PYTHON, WORKER, torch_is_there  # noqa: E402
from timeline import parent_of  # noqa: E402
from warm_case import TRAINING, WarmTestCase  # noqa: E402


class Preloaded(WarmTestCase):
    """Modules that are named by hand."""

    def test_workers_and_their_successors_are_forked(self):
        agent = self.preloading("json", "decimal")
        keeper = self.bed.event("agent_start")["keeper"]
        workers = self.bed.workers(1, 2, alive=[agent])
        for generation in (1, 2, 3):
            self.assertEqual([True, True], self.starts(generation))
            self.assertEqual([keeper, keeper], [parent_of(worker["pid"]) for worker in workers])
            workers = self.restart(agent, generation, 2)
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_twin_that_is_cold(self):
        agent = self.bed.agent("agent", ["--standalone", "--nproc_per_node", 2, "--max_restarts", 9])
        workers = self.restart(agent, 1, 2)
        self.bed.follower.refresh()
        self.assertNotIn("warm", self.bed.events.find("worker_started")[0])
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def check_same(self, *options):
        cold = self.observe("cold", *options)
        warm = self.observe("warm", *options, "--warm", "on", "--preload", "decimal,logging")
        self.assertEqual([True, True], self.starts(1)[-2:])
        for one, other in zip(cold, warm):
            for name, seen in one.items():
                self.assertEqual(seen, other[name], name)

    def test_a_worker_sees_no_difference(self):
        self.check_same()

    def test_a_worker_whose_output_goes_to_files_sees_no_difference(self):
        self.check_same("--redirects", "3", "--log_dir", self.bed.path("logs"))

    def test_no_worker_waits_for_the_end_of_a_copy(self):
        agent = self.preloading("decimal")
        workers = self.bed.workers(1, 2, alive=[agent])

        def between():
            parked = self.parked()
            with open(f"/proc/{parked}/task/{parked}/children", encoding="ascii") as children:
                return [os.readlink(f"/proc/{pid}/exe") for pid in children.read().split()]
        self.bed.wait(lambda: between() == [os.path.realpath("/bin/sh")], "a shell between", alive=[agent])
        self.bed.finish(workers)
        self.assert_status(0, agent)

    @unittest.skipUnless(os.geteuid() == 0, "mount(2) is for root")
    def test_twin_without_a_shell(self):
        self.bed.environment["PYTHON_EXEC"] = sys.executable
        agent = self.bed.start_process(
            "agent", ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /bin/sh && exec "$@"', "sh",
                      DDPRUN, "--standalone", "--nproc_per_node", "2", "--max_restarts", "9", "--warm", "on",
                      "--preload", "decimal", "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, "wait"],
            output=self.bed.path("agent.out"), env=self.bed.environment)
        workers = self.bed.workers(1, 2, alive=[agent])
        for generation in (1, 2):
            self.assertEqual([True, True], self.starts(generation))
            workers = self.restart(agent, generation, 2)
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_what_imports_print_every_worker_prints(self):
        self.module("talking", "import sys\nprint('hello from an import')\nprint('and from stderr', file=sys.stderr)\n")
        agent = self.preloading("talking", options=["--prefix_output"])
        self.bed.finish(self.bed.workers(1, 2, alive=[agent]))
        self.assert_status(0, agent)
        for rank in (0, 1):
            for line in ("hello from an import", "and from stderr"):
                self.assertEqual(1, agent.text().count(f"[default{rank}]:{line}"), agent.text())

    def test_a_module_that_says_when_garbage_is_looked_for(self):
        """While imports are made ahead, nothing looks; that is over before workers are, and is no reason to forget this."""
        self.module("tuned", "import gc\ngc.set_threshold(123, 4, 5)\n")
        script = self.bed.write("tuned_job.py", "import gc, os, tuned\n"
                                "os.write(1, f'thresholds {gc.get_threshold()}\\n'.encode())\n")
        agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--warm", "on", "--preload", "tuned",
                                       "--event_log", self.bed.events.path, script])
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(1))
        self.assertEqual(2, agent.text().count("thresholds (123, 4, 5)\n"), agent.text())

    def test_the_users_own_sitecustomize_runs_in_each_worker(self):
        self.module("sitecustomize", "import os\nos.environ['SITE'] = os.environ.get('RANK', 'parked')\n")
        agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--warm", "on", "--preload", "decimal",
                                       "--event_log", self.bed.events.path, "--no_python", "--", "true"])
        self.assert_status(0, agent)
        script = self.bed.write("site.py", "import os, sys\n"  # in one write: the workers share the terminal
                                "os.write(1, f\"site {os.environ['SITE']} {'sitecustomize' in sys.modules}\\n\".encode())\n")
        agent = self.bed.run("second", ["--standalone", "--nproc_per_node", 2, "--warm", "on", "--preload", "decimal",
                                        "--event_log", self.bed.events.path, script])
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(1)[-2:])
        for rank in (0, 1):
            self.assertIn(f"site {rank} True", agent.text())


class Refusals(WarmTestCase):
    """Modules that can't be imported before the importing process is known."""

    def check(self, text, why):
        self.module("spoilt", text)
        agent = self.preloading("spoilt", "decimal")
        refused = self.bed.event("warm_refused", alive=[agent])
        self.assertEqual("spoilt", refused["module"])
        self.assertIn(why, refused["why"])
        self.ready(alive=[agent])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))

    def test_one_that_reads_the_rank(self):
        self.check("import os\nRANK = os.environ.get('LOCAL_RANK')\n", "reads LOCAL_RANK when it is imported")

    def test_one_that_keeps_a_file_open(self):
        self.check("FILE = open('/dev/zero')\n", "leaves the descriptor of /dev/zero open")

    def test_one_that_starts_a_thread(self):
        self.check("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
                   "starts a thread")


    def test_a_package_of_many_modules_that_reads_the_rank(self):
        """Stands for Lightning: no module of the package can be imported without it."""
        os.makedirs(self.bed.path("modules/package"))
        self.module("package/__init__", "import os\nRANK = os.environ.get('RANK')\n")
        names = [f"package.part{number}" for number in range(20)]  # more than may be refused one after the other
        for name in names:
            self.module(name.replace(".", "/"), "")
        agent = self.preloading(*names, "decimal")
        self.ready(alive=[agent])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))


class Failures(WarmTestCase):
    """Whatever happens to the interpreter that waits, workers start."""

    def test_it_is_killed_and_parked_again(self):
        agent = self.preloading("decimal")
        self.bed.workers(1, 2, alive=[agent])
        os.kill(self.parked(), signal.SIGKILL)
        self.assertEqual("was killed by SIGKILL", self.bed.event("warm_lost", alive=[agent])["how"])
        self.ready(count=2, alive=[agent])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([True, True], self.starts(2))

    def test_it_dies_again_and_again(self):
        self.module("deadly", "import os\nos.kill(os.getpid(), 9)\n")
        agent = self.preloading("deadly")
        self.assertIn("was killed by SIGKILL 4 times", self.bed.event("warm_off", alive=[agent])["why"])
        self.bed.finish(self.restart(agent, 1, 2))
        self.assert_status(0, agent)
        self.assertEqual([False, False], self.starts(2))
        self.assertIn("workers start cold from now on: ", agent.text())

    def test_a_job_ends_while_workers_wait_for_its_imports(self):
        fifo = self.bed.path("never")
        os.mkfifo(fifo)
        self.module("waiting", f"open({fifo!r}).read()\n")
        agent = self.preloading("waiting")
        self.bed.event("spawn", alive=[agent])
        agent.signal(signal.SIGTERM)
        agent.wait(5 * SLOW)  # the imports would be waited for a minute
        self.assertEqual([], self.starts(1))

    def test_it_goes_with_an_agent_that_is_killed(self):
        agent = self.preloading("decimal")
        self.bed.workers(1, 2, alive=[agent])
        parked = os.pidfd_open(self.parked())
        agent.signal(signal.SIGKILL)
        ended, _, _ = select.select([parked], [], [], 5 * SLOW)
        os.close(parked)
        self.assertTrue(ended)


@unittest.skipUnless(torch_is_there(), "torch is not installed")
class Learned(WarmTestCase):
    """What the first workers import is what the next ones have."""

    def setUp(self):
        super().setUp()
        elsewhere = self.bed.path("modules/lib/site-packages")
        os.makedirs(elsewhere)
        self.bed.environment.update(PYTHON_EXEC=TORCH_PYTHON, PYTHONPATH=f"{self.bed.path('modules')}:{elsewhere}")
        self.module("mine", "")
        self.module("lib/site-packages/elsewhere", "")

    def job(self, name, script):
        return self.bed.run(name, ["--standalone", "--nproc_per_node", 2, "--max_restarts", 3, "--warm", "on",
                                   "--event_log", self.bed.events.path, script, self.bed.journal.path])

    def test_restarts_and_the_next_job(self):
        script = self.bed.write("train.py", TRAINING.replace("import torch\n", "import torch, mine, elsewhere\n"))
        agent = self.job("first", script)
        cold = self.bed.workers(1, 2, alive=[agent])
        self.ready(alive=[agent])
        warm = self.restart(agent, 1, 2)
        self.bed.finish(warm)
        self.assert_status(0, agent)
        self.assertEqual(([False, False], [True, True]), (self.starts(1), self.starts(2)))
        for one, other in zip(cold, warm):
            for field in ("rank", "threads", "cuda", "parent"):
                self.assertEqual(one[field], other[field], field)
        # Each process draws seeds of its own when it imports these.
        for field in ("seed", "numpy", "random", "authkey"):
            self.assertEqual(4, len({worker[field] for worker in cold + warm}), field)
        self.check_kept()
        self.check_next_job(script, max(worker["t"] for worker in warm))

    def check_kept(self):
        folder = self.bed.path("cache/ddprun/warm")
        name, = os.listdir(folder)
        self.assertTrue(name.startswith("train.py-"))
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertIn("module torch.nn.parallel", lines)
        # PYTHONPATH names the installation of `elsewhere`, as on a cluster, in the script's folder, as a .venv is; `mine` is the
        # user's own.
        self.assertIn("module elsewhere", lines)
        self.assertNotIn("module mine", lines)
        self.assertIn("set WARM_TEST_SAME=same", lines)
        self.assertIn("varies WARM_TEST_OWN", lines)
        self.assertLess(lines.index("set WARM_TEST_SAME=same"), lines.index("module torch.nn.parallel"))

    def check_next_job(self, script, after):
        agent = self.job("second", script)
        lines = self.bed.wait(lambda: len(found := self.bed.journal.find("worker", after)) == 2 and found, "two workers",
                              alive=[agent])
        self.bed.finish(lines)
        self.assert_status(0, agent)
        self.assertEqual([True, True], [line["warm"] for line in self.bed.events.find("worker_started", after)])


if __name__ == "__main__":
    unittest.main()
