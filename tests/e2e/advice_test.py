#!/usr/bin/env python3
"""Failures that people know, made here, and what the report advises (launcher/advice, docs/LOGS.md)."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, SLOWNESS, TORCH_PYTHON, BedTestCase, free_port, read_until, torch_is_there  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402


class AdviceTestCase(BedTestCase):
    def advice(self, text, *options, env=None, timeout=10, script=None, **more):
        """The JSON report's advice on the root cause, and the report. `text` is train.py's, if no `script` is named."""
        report = self.bed.path("report.json")
        agent = self.bed.run("ddprun", ["--redirects", 2, *options, "--report_file", report, "--log_dir",
                                        self.bed.path("logs"), script or self.bed.write("train.py", text)], env=env, **more)
        self.assert_status(1, agent, timeout * SLOW)
        with open(report, encoding="utf-8") as source:
            return json.load(source)["root_causes"][0]["advice"], agent.text()

    def assert_advised(self, rule, words, *options, **more):
        advice, text = self.advice(words, *options, **more)
        self.assertIsNotNone(advice, text)
        self.assertEqual(rule, advice["rule"])
        self.assertIn("\n  advice    : " + advice["text"].split()[0], text)
        self.assertIn(f"\n  next      : {advice['next']}\n", text)
        self.assertNotIn("\n  hint      : ", text)
        return advice


class PlainPrograms(AdviceTestCase):
    def test_missing_module(self):
        advice = self.assert_advised("missing_module", "import flash_attn_of_nobody\n")
        # Nothing is installed by a guess: anybody may own a module's name on PyPI.
        self.assertNotIn("pip install", advice["next"])
        self.assertIn("print(sys.executable, *sys.path)", advice["next"])
        self.assertEqual("ModuleNotFoundError: No module named 'flash_attn_of_nobody'", advice["line"])

    def test_module_of_a_library(self):
        """The package of a well-known module; of another one nothing is installed, see above."""
        advice = self.assert_advised("module_not_installed", "raise ModuleNotFoundError(\"No module named 'cv2'\")\n")
        self.assertIn(" -m pip install opencv-python ", advice["next"])

    def test_module_of_ones_own(self):
        """The module is in the script's repository, where Python doesn't look."""
        for folder in (".git", "mymodels", "scripts"):
            os.mkdir(self.bed.path(folder))
        self.bed.write("mymodels/vit.py", "")
        script = self.bed.write("scripts/train.py", "import mymodels.vit\n")
        advice = self.assert_advised("module_outside_path", "", script=script)
        self.assertEqual(f"PYTHONPATH={self.bed.folder} ddprun …  # the same line as before, on every node", advice["next"])
        agent = self.bed.run("cured", [script], env={"PYTHONPATH": self.bed.folder})
        self.assert_status(0, agent, 10 * SLOW)

    def test_module_that_is_misspelled(self):
        os.mkdir(self.bed.path("mymodels"))
        self.bed.write("mymodels/vit.py", "")
        advice = self.assert_advised("module_misspelled", "import mymodels.vti\n")
        self.assertIn("mymodels has vit. Is the name misspelled?", advice["text"])

    def run_with_tmpfs(self, options, folder, script, *words):
        """The words on stderr of a job that fails, with a tmpfs of its own at `folder`."""
        os.mkdir(folder)
        line = f'mount -t tmpfs -o {options} none {folder} && exec "$0" "$@"'
        if subprocess.run(["unshare", "-rm", "sh", "-c", line, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no tmpfs of its own can be mounted")
        result = subprocess.run(["unshare", "-rm", "sh", "-c", line, DDPRUN, *words, self.bed.write("train.py", script)],
                                capture_output=True, text=True, env=self.bed.environment, timeout=PATIENCE, check=False)
        self.assertEqual(1, result.returncode, result.stderr)
        return result.stderr

    def test_full_disk_of_the_logs(self):
        """Workers write to their files themselves, and their last words are lost with the disk."""
        logs = self.bed.path("full")
        text = self.run_with_tmpfs("size=64k", logs, "for _ in range(3000):\n    print('x' * 100, flush=True)\n",
                                   "--redirects", "3", "--log_dir", logs)
        self.assertRegex(text, rf"error: the job failed: .* exited with code 1: {logs}/\S+ is full \(64.0 KiB\)\n")
        self.assertIn("\n  next      : ssh ", text)

    def test_full_disk_of_the_workers_own_files(self):
        """The disk has no inodes left, so df shows room."""
        folder = self.bed.path("full")
        text = self.run_with_tmpfs("size=1m,nr_inodes=4", folder, f"for i in range(9):\n    open(f'{folder}/{{i}}', 'w')\n")
        self.assertIn(f"\n  disk      : {folder} is full (1.0 MiB, all 4 inodes)\n", text)
        self.assertIn(f"No space left on device: '{folder}/", text)

    def test_port_that_two_workers_want(self):
        """A port that is written into the program serves one worker of a node."""
        port = free_port()
        program = f"import socket, time\nholder = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(60)\n"
        self.assert_advised("port_in_use", program, "--nproc_per_node", 2)

    def test_full_disk(self):
        self.assert_advised("disk_full", "with open('/dev/full', 'w') as sink:\n    sink.write('x' * 100000)\n")

    def test_too_many_open_files(self):
        self.assert_advised("open_files", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
                            "files = [open('/dev/null') for _ in range(50)]\n")

    def test_memory(self):
        self.assert_advised("memory_error", "bytearray(1 << 50)\n")

    def test_in_a_terminal_of_the_same_machine(self):
        """A reader at that terminal needs no ssh; a file may be read on any machine."""
        script = self.bed.write("train.py", "bytearray(1 << 50)\n")
        master, terminal = os.openpty()
        agent = self.bed.run("ddprun", [script], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
        os.close(terminal)
        with open(master, "rb") as console:
            text = read_until(console, b"\n  stderr  ", 10 * SLOW).decode()
        self.assert_status(1, agent, 10 * SLOW)
        self.assertRegex(text, r"\n  next      : free -h; ulimit -v\r?\n")
        self.assertIn("ssh ", self.assert_advised("memory_error", "bytearray(1 << 50)\n")["next"])

    def memory_cgroup(self):
        cgroup = MemoryCgroup(int(200 * SLOWNESS) << 20)  # a sanitizer takes several times as much
        self.addCleanup(cgroup.close)
        self.addCleanup(self.bed.stop)  # empties it first
        return cgroup

    def test_killed_by_the_kernel_for_memory(self):
        advice = self.assert_advised("killed_for_memory", "blocks = []\nwhile True:\n    blocks.append(b'x' * (8 << 20))\n",
                                     "--nproc_per_node", 2, preexec_fn=self.memory_cgroup().enter)
        self.assertIn("dmesg", advice["next"])

    def test_twin_killed_by_somebody_else(self):
        advice, text = self.advice("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
                                   preexec_fn=self.memory_cgroup().enter)
        self.assertIsNone(advice, text)

    def test_processes_without_a_main_guard(self):
        self.assert_advised("main_guard", "import multiprocessing, sys\n"
                            "child = multiprocessing.get_context('spawn').Process(target=print)\n"
                            "child.start()\nchild.join()\nsys.exit(child.exitcode)\n")

    def test_name_that_nobody_knows(self):
        self.assert_advised("name_lookup", "import socket\nsocket.create_connection(('no-such-host.invalid', 80))\n")

    def test_the_words_of_an_error_file_count(self):
        """Without captured output, what @record writes is enough."""
        script = ("import json, os, sys\nwith open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as sink:\n"
                  "    json.dump({'message': {'message': \"ModuleNotFoundError: No module named 'apex'\", 'extraInfo': "
                  "{'py_callstack': 'Traceback …', 'timestamp': '1700000000'}}}, sink)\nsys.exit(1)\n")
        self.assert_advised("missing_module", script, "--redirects", 0)

    def test_what_nobody_knows(self):
        """Negative control: no rule, no advice."""
        for script in ("raise ValueError('bad batch')\n", "import sys\nsys.exit(1)\n"):
            advice, text = self.advice(script)
            self.assertIsNone(advice)
            self.assertNotIn("advice    :", text)
            self.assertNotIn("next      :", text)

    def test_a_signal_without_advice_keeps_its_hint(self):
        advice, text = self.advice("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
        self.assertIsNone(advice)
        self.assertIn("  hint      : ", text)


@unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
class TorchPrograms(AdviceTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON

    def test_no_gpu(self):
        self.assert_advised("no_gpu", "import torch\ntorch.zeros(1, device='cuda')\n",
                            env={"CUDA_VISIBLE_DEVICES": ""}, timeout=60)

    def test_store_at_a_taken_port(self):
        port = free_port()
        advice = self.assert_advised(
            "address_in_use", f"import socket\nholder = socket.create_server(('0.0.0.0', {port}))\n"
            f"import torch.distributed as dist\ndist.TCPStore('127.0.0.1', {port}, 1, True)\n", timeout=60)
        self.assertIn(f"sport = :{port}", advice["next"])

    def test_wrong_interface(self):
        advice = self.assert_advised(
            "no_such_interface", "import torch.distributed as dist\ndist.init_process_group('gloo')\n",
            env={"GLOO_SOCKET_IFNAME": "eth9"}, timeout=60)
        self.assertIn("no network interface eth9", advice["text"])

    def test_parameters_without_gradients(self):
        self.assert_advised("unused_parameters", """
import torch
import torch.distributed as dist
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.used(x)
dist.init_process_group('gloo')
net = torch.nn.parallel.DistributedDataParallel(Net())
for _ in range(2):
    net(torch.ones(1, 2)).sum().backward()
""", "--nproc_per_node", 2, timeout=60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
