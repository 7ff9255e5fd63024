#!/usr/bin/env python3
"""ddprun_torch: each way to torchrun's agent leads to ddprun, and its callers get what they expect."""

import json
import os
import signal
import subprocess
import sys
import types
import unittest

from python_bed import DDPRUN, LAUNCHERS, MISSING, PACKAGE, PATIENCE, WHOLE, ParkedCaller, PythonTestCase
from ports import enter_private_network

sys.path.insert(0, PACKAGE)
from ddprun_torch import elastic, shim  # noqa: E402

SHOW = '''import os, sys
facts = ["worker", os.environ["RANK"], os.environ["WORLD_SIZE"], str(os.environ.get("DDPRUN_GENERATION")), *sys.argv[1:]]
os.write(1, (" ".join(facts) + "\\n").encode())  # one write, which no other rank's divides
'''

CONFIG = '''import sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
def config(**more):
    return LaunchConfig(**{**dict(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d",
                                  rdzv_endpoint="localhost:0", run_id="j", max_restarts=0), **more})
'''


class CommandLines(unittest.TestCase):
    def test_what_is_a_launcher(self):
        run = "torch.distributed.run"
        for words, expected in (
                (["python", "-m", run, "a"], (run, ["a"])),
                (["python", "-u", "-X", "dev", "-W", "ignore", "-m", run], (run, [])),
                (["python", "-m", "other", run], (None, [])),
                (["python", "script.py", "-m", run], (None, [])),
                (["python", "-c", "pass", "-m", run], (None, [])),
                (["python", "-", "-m", run], (None, [])),
                (["python", "-m"], (None, [])),
                (["python"], (None, [])),
                ([], (None, []))):
            self.assertEqual(expected, shim.launcher_of(words), words)


class Configs(unittest.TestCase):
    """Without torch: LaunchConfigs of other torches."""

    @staticmethod
    def of_2_4(**later):
        """It has no more fields than these."""
        return types.SimpleNamespace(
            min_nodes=1, max_nodes=2, nproc_per_node=2, logs_specs=None, run_id="j", role="default_role", rdzv_endpoint="host0:1",
            rdzv_backend="c10d", rdzv_configs={"timeout": 900}, rdzv_timeout=-1, max_restarts=3, monitor_interval=0.1,
            start_method="spawn", log_line_prefix_template=None, metrics_cfg={}, local_addr=None, **later)

    def test_torch_2_4(self):
        self.assertEqual(["--nnodes", "1:2", "--nproc_per_node", "2", "--rdzv_id", "j", "--max_restarts", "3",
                          "--role", "default_role", "--signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                          "--event_log_handler", "null", "--rdzv_backend", "c10d", "--rdzv_endpoint", "host0:1"],
                         elastic.options_of(self.of_2_4()))

    def test_torch_2_15(self):
        options = elastic.options_of(self.of_2_4(shutdown_timeout=5))
        self.assertEqual("5s", options[options.index("--shutdown_timeout") + 1])
        with self.assertRaisesRegex(ValueError, "answers health checks itself .* can't use a object; leave"):
            elastic.launch_agent(self.of_2_4(), "sh", [], health_check_server=object())


class Programs(PythonTestCase):
    """Programs that don't import torch: the interpreter becomes ddprun before that."""

    def plain(self, name, words, **options):
        return self.python(name, words, interpreter=sys.executable, **options)

    def test_module_run_is_ddprun(self):
        script = self.bed.write("show.py", SHOW)
        for name, words in (("shim", ["-m", "torch.distributed.run"]), ("run", ["-m", "ddprun_torch.run"])):
            text = self.text_of(self.plain(name, [*words, "--nproc_per_node", 2, script, "a"]))
            self.assertEqual({"worker 0 2 1 a", "worker 1 2 1 a"}, set(text.splitlines()))

    def test_python_3_9_has_no_orig_argv(self):
        script = self.bed.write("show.py", SHOW)
        path = self.bed.path("sitecustomize.py")
        with open(path, encoding="utf-8") as source:
            text = source.read()
        self.bed.write("sitecustomize.py", "import sys\ndel sys.orig_argv\n" + text)
        text = self.text_of(self.plain("shim", ["-m", "torch.distributed.run", "--nproc_per_node", 2, script, "a"]))
        self.assertEqual({"worker 0 2 1 a", "worker 1 2 1 a"}, set(text.splitlines()))

    def test_launch_passes_the_local_rank_unless_told_otherwise(self):
        script = self.bed.write("show.py", SHOW)
        text = self.text_of(self.plain("launch", ["-m", "torch.distributed.launch", script, "a"]))
        self.assertEqual("worker 0 1 1 --local-rank=0 a\n", text)
        text = self.text_of(self.plain("use_env", ["-m", "torch.distributed.launch", "--use-env", script, "a"]))
        self.assertEqual("worker 0 1 1 a\n", text)

    def test_status_and_signals_are_ddpruns(self):
        script = self.bed.write("exit.py", "import sys; sys.exit(7)\n")
        self.text_of(self.plain("exit", ["-m", "torch.distributed.run", "--exit_code", "worker", script]), 7)

    def test_without_a_ddprun_it_says_so_and_nothing_else_happens(self):
        for variable, text in (("/nowhere/ddprun", "is no program that can be run"), ("", "no ddprun in PATH")):
            process = self.plain("none", ["-m", "torch.distributed.run", "x.py"],
                                 env={"DDPRUN_BIN": variable, "PATH": "/nowhere"})
            self.assertIn(text, self.text_of(process, 1))

    def test_enable_writes_a_file_and_removes_it(self):
        venv = self.bed.path("venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        script = self.bed.write("show.py", SHOW)
        python = os.path.join(venv, "bin", "python3")
        env = {**self.bed.environment, "DDPRUN_BIN": DDPRUN, "DDPRUN_SHIM": "1"}
        job = [python, "-m", "torch.distributed.run", script]

        def enable(*words):
            subprocess.run([python, "-m", "ddprun_torch.enable", *words], check=True, capture_output=True,
                           env={**env, "PYTHONPATH": PACKAGE, "DDPRUN_SHIM": "0"})

        enable()
        self.assertEqual("worker 0 1 1\n", subprocess.run(job, env=env, check=True, capture_output=True, text=True).stdout)
        off = subprocess.run(job, env={**env, "DDPRUN_SHIM": "0"}, check=False, capture_output=True, text=True)
        self.assertIn("No module named 'torch'", off.stderr)
        enable("--remove")
        gone = subprocess.run(job, env=env, check=False, capture_output=True, text=True)
        self.assertIn("No module named 'torch'", gone.stderr)


@unittest.skipUnless(os.path.exists(LAUNCHERS), MISSING)
class InProcess(PythonTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.parked = ParkedCaller()
        cls.addClassCleanup(cls.parked.close)

    def shown(self, name, text, status=0, env=None):
        """The output of a program for which the kind of start doesn't matter: it is forked, except with --all."""
        if WHOLE:
            return self.text_of(self.call(name, text, env=env), status)
        output = self.bed.path(f"{name}.out")
        found = self.parked.call(script=self.bed.write(f"{name}.py", text), output=output, folder=self.bed.folder,
                                 environment=self.environment(env=env))
        with open(output, encoding="utf-8") as source:
            shown = source.read()
        self.assertEqual(status, found, shown)
        return shown

    def call(self, name, text, **options):
        return self.python(name, [self.bed.write(f"{name}.py", text)], **options)

    def test_run_with_torchs_own_arguments(self):
        script = self.bed.write("show.py", SHOW)
        text = f"import torch.distributed.run as r\nr.run(r.parse_args(['--nproc_per_node', '2', '{script}', 'a']))\n"
        shown = self.text_of(self.call("on", text))
        self.assertIn("worker 0 2 1 a\n", shown)
        self.assertIn("worker 1 2 1 a\n", shown)
        # Negative control: torch's own agent, which knows no generation.
        self.assertIn("worker 0 2 None a\n", self.text_of(self.call("off", text, shim=False)))

    def test_a_debugger_that_the_workers_miss_is_said(self):
        script = self.bed.write("show.py", SHOW)
        run = f"import torch.distributed.run as r\nr.run(r.parse_args(['{script}']))\n"
        debugged = "import sys, types\nsys.modules['pydevd'] = types.ModuleType('pydevd')\n"
        words = "the debugger of this process isn't in the workers. To debug them: ddprun --nproc_per_node N -m debugpy"
        text = self.shown("debugged", debugged + run)
        self.assertIn(words, text)
        self.assertIn("worker 0 1 1\n", text)
        self.assertNotIn(words, self.shown("plain", run))

    def test_a_function_and_its_results(self):
        """A worker waits at its end for the ends of the others, as torch's do: many programs leave their process group to the end
        of the process."""
        # ddprun, and a copy of the event log, which the shim removes.
        ddprun = self.bed.write("ddprun", f'''#!/bin/sh
{DDPRUN} "$@"
status=$?
while [ "$1" != --event_log ]; do shift; done
cp "$2" {self.bed.path("copy.jsonl")}
exit $status
''', 0o755)
        text = CONFIG + ("def work(x, y=1):\n    import os\n    return {'rank': int(os.environ['RANK']), 'x': x}\n"
                         "if __name__ == '__main__':\n    print(elastic_launch(config(), ENTRY))\n")
        for entry, result, held in (("work)([7]", "{0: {'rank': 0, 'x': [7]}, 1: {'rank': 1, 'x': [7]}}\n", 2),
                                    ("'true')(", "{0: None, 1: None}\n", 0)):
            self.assertIn(result, self.shown(f"held{held}", text.replace("ENTRY", entry), env={"DDPRUN_BIN": ddprun}))
            with open(self.bed.path("copy.jsonl"), encoding="utf-8") as source:
                events = [json.loads(line) for line in source]
            finished = [line["t"] for line in events if line["event"] == "worker_finished"]
            self.assertEqual(held, len(finished))
            ends = [line["t_seen"] for line in events if line["event"] == "worker_exit"]
            self.assertEqual(2, len(ends))
            self.assertGreater(min(ends), max(finished, default=0))

    def test_output_passes_through_what_the_caller_put_in_place_of_stdout(self):
        """A notebook, or a test of the caller's, replaces stdout; the streams of the process itself go to ddprun unchanged."""
        script = self.bed.write("show.py", SHOW + "os.write(2, b'complaint\\n')\n")
        text = self.shown("captured", CONFIG + f'''
import contextlib, io, os
got, said = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(got), contextlib.redirect_stderr(said):
    elastic_launch(config(), sys.executable)("-u", {script!r}, "ü")
lines = sorted(got.getvalue().splitlines())
print(lines[:2] == ["worker 0 2 1 ü", "worker 1 2 1 ü"], said.getvalue().count("complaint"), flush=True)
elastic_launch(config(), sys.executable)("-u", {script!r}, "direct")
''')
        self.assertEqual("True 2", text.splitlines()[0])
        self.assertNotIn("worker 0 2 1 ü", text)
        self.assertIn("worker 1 2 1 direct\n", text)

    def test_a_numa_binding_is_passed_on(self):
        text = CONFIG + (
            "from torch.numa.binding import AffinityMode, NumaOptions\nfrom ddprun_torch.elastic import options_of\n"
            "for numa in (None, NumaOptions(AffinityMode.CORE_COMPLEX), NumaOptions(AffinityMode.NODE, True)):\n"
            "    options = options_of(config(numa_options=numa))\n"
            "    print(*[word for at, word in enumerate(options) if 'binding' in word or options[at - 1] == '--numa_binding'])\n"
            "elastic_launch(config(numa_options=NumaOptions(AffinityMode.NODE, True), nproc_per_node=1), 'true')()\n"
            "elastic_launch(config(numa_options=NumaOptions(AffinityMode.NODE), nproc_per_node=1), 'true')()\n")
        shown = self.shown("numa", text, 1, env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertIn("\n--numa_binding core-complex\n--numa_binding node --binding_fallback\n", shown)
        self.assertIn("workers are not bound", shown)
        self.assertIn("RuntimeError: ddprun ended with status 1", shown)

    def test_a_failed_worker_is_a_child_failed_error(self):
        text = CONFIG + (
            "def work():\n    import os, signal\n    if os.environ['RANK'] == '1': raise ValueError('no luck')\n"
            "    signal.pause()\n"
            "if __name__ == '__main__':\n"
            "    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError\n"
            "    try:\n        elastic_launch(config(), work)()\n"
            "    except ChildFailedError as error:\n"
            "        rank, failure = error.get_first_failure()\n"
            "        print('caught', error.name, rank, failure.local_rank, failure.exitcode, 'no luck' in str(error))\n")
        self.assertIn("caught work 1 1 1 True\n", self.shown("fails", text))

    def test_main_of_run_records_the_root_cause(self):
        script = self.bed.write("killed.py", "import os\nos.kill(os.getpid(), 9)\n")
        text = f"import torch.distributed.run as r\nr.main(['--nproc_per_node', '1', '{script}'])\n"
        shown = self.shown("main", text, 1)
        self.assertIn("ChildFailedError", shown)
        self.assertRegex(shown, r"exitcode +: -9")

    def test_a_signal_reaches_the_workers_and_is_a_signal_exception(self):
        text = CONFIG + (
            "from torch.distributed.elastic.multiprocessing.api import SignalException\n"
            f"try:\n    elastic_launch(config(nproc_per_node=1), sys.executable)('{self.worker()}', '{self.bed.journal.path}', "
            "'log-signals')\nexcept SignalException as error:\n    print('caught', int(error.sigval))\n")
        caller = self.call("signalled", text)
        self.bed.wait(lambda: self.bed.journal.find("worker"), "the worker", PATIENCE, alive=[caller])
        caller.signal(signal.SIGUSR1)
        self.bed.wait(lambda: self.bed.journal.find("got", signal=10), "USR1", PATIENCE, alive=[caller])
        caller.signal(signal.SIGTERM)
        self.assertIn("caught 15\n", self.text_of(caller))
        self.bed.follower.refresh()
        self.assertEqual(1, len(self.bed.journal.find("got", signal=15)))

    def test_a_killed_caller_takes_the_job_along(self):
        text = CONFIG + (f"elastic_launch(config(nproc_per_node=1), sys.executable)('{self.worker()}', "
                         f"'{self.bed.journal.path}', 'log-signals')\n")
        caller = self.call("killed", text)
        self.bed.wait(lambda: self.bed.journal.find("worker"), "the worker", PATIENCE, alive=[caller])
        caller.signal(signal.SIGKILL)
        self.bed.wait(lambda: self.bed.journal.find("got", signal=15), "TERM for the worker", PATIENCE)

    def test_what_cannot_be_done_is_refused_in_words(self):
        text = CONFIG + ("try:\n    elastic_launch(config(), lambda: 1)()\nexcept ValueError as error:\n    print(error)\n"
                         "try:\n    elastic_launch(config(rdzv_backend='zeus', rdzv_endpoint='x:1'), 'true')()\n"
                         "except RuntimeError as error:\n    print(error)\n")
        shown = self.shown("refused", text)
        self.assertIn("can't be sent there", shown)
        self.assertIn("is not registered as a backend", shown)
        self.assertIn("no worker to blame", shown)

    @staticmethod
    def worker():
        return os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "worker.py")


if __name__ == "__main__":
    enter_private_network()  # torch's own agent listens on port 29500
    unittest.main(verbosity=2)
