#!/usr/bin/env python3
"""Scripts that fail, and the line with which ddprun says so: it names the cause (docs/LOGS.md)."""

import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, TORCH_PYTHON, BedTestCase, free_port, torch_is_there  # noqa: E402

WORKER = r"ddprun: error: the job failed: worker rank 0 on \S+ "

# What it is, the script, and the end of the first line, as a regular expression.
PLAIN = [
    ("a library that isn't there", "import cv2_of_nobody\n",
     "exited with code 1: ModuleNotFoundError: No module named 'cv2_of_nobody'"),
    ("a part that a module lacks", "import json.nosuch\n",
     "exited with code 1: ModuleNotFoundError: No module named 'json.nosuch'"),
    ("a name that a module lacks", "from os import nosuch\n",
     "exited with code 1: ImportError: cannot import name 'nosuch' from 'os'.*"),
    ("a relative import", "from . import model\n",
     "exited with code 1: ImportError: attempted relative import with no known parent package"),
    ("an own exception", "class Bad(Exception):\n    pass\nraise Bad('batch 3')\n", "exited with code 1: Bad: batch 3"),
    ("an exception without words", "raise ValueError\n", "exited with code 1: ValueError"),
    ("words of several lines", "raise ValueError('first\\nsecond')\n", "exited with code 1: ValueError: first"),
    ("an exception that follows another", "try:\n    {}['x']\nexcept KeyError:\n    raise RuntimeError('no x')\n",
     "exited with code 1: RuntimeError: no x"),
    ("an exception beside one in a destructor",
     "class Odd:\n    def __del__(self):\n        raise TypeError('late')\nodd = Odd()\nraise ValueError('first')\n",
     "exited with code 1: ValueError: first"),
    ("words after the exception",
     "import atexit, sys\natexit.register(print, 'saved', file=sys.stderr)\nraise ValueError('bad')\n",
     "exited with code 1: ValueError: bad"),
    ("wrong syntax", "if True print(1)\n", "exited with code 1: SyntaxError: .*"),
    ("wrong indentation", "def f():\nreturn 1\n", "exited with code 1: IndentationError: .*"),
    ("a recursion", "def f():\n    f()\nf()\n", "exited with code 1: RecursionError: maximum recursion depth exceeded.*"),
    ("a key", "{}['lr']\n", "exited with code 1: KeyError: 'lr'"),
    ("a variable", "import os\nos.environ['DATA_ROOT_OF_NOBODY']\n", "exited with code 1: KeyError: 'DATA_ROOT_OF_NOBODY'"),
    ("a file that isn't there", "open('data/train.bin')\n",
     r"exited with code 1: FileNotFoundError: \[Errno 2\] No such file or directory: 'data/train.bin'"),
    ("a folder in a file's place", "open('/tmp')\n", r"exited with code 1: IsADirectoryError: .*'/tmp'"),
    ("a full disk", "with open('/dev/full', 'w') as sink:\n    sink.write('x' * 100000)\n",
     r"exited with code 1: OSError: \[Errno 28\] No space left on device"),
    ("a taken port", "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(a.getsockname())\n",
     r"exited with code 1: OSError: \[Errno 98\] Address already in use.*"),
    ("a host that nobody knows", "import socket\nsocket.create_connection(('no-such-host.invalid', 80))\n",
     "exited with code 1: socket.gaierror: .*"),
    ("a peer that refuses", "import socket\nsocket.create_connection(('127.0.0.1', 1))\n",
     r"exited with code 1: ConnectionRefusedError: \[Errno 111\] Connection refused"),
    ("memory", "bytearray(1 << 60)\n", "exited with code 1: MemoryError"),
    ("too many files", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
     "files = [open('/dev/null') for _ in range(50)]\n",
     r"exited with code 1: OSError: \[Errno 24\] Too many open files: '/dev/null'"),
    ("an option that the script lacks", "import argparse\nargparse.ArgumentParser(prog='train.py').parse_args(['--lr', '1'])\n",
     "exited with code 2: train.py: error: unrecognized arguments: --lr 1"),
    ("sys.exit with words", "import sys\nsys.exit('error: no data')\n", "exited with code 1: error: no data"),
    ("sys.exit with other words", "import sys\nsys.exit('nothing to do')\n", "exited with code 1"),
    ("a status alone", "import sys\nsys.exit(3)\n", "exited with code 3"),
    ("a child that failed", "import subprocess\nsubprocess.run(['false'], check=True)\n",
     r"exited with code 1: subprocess.CalledProcessError: Command '\['false'\]' returned non-zero exit status 1."),
    ("a program that isn't there", "import subprocess\nsubprocess.run(['nosuchprogram'])\n",
     r"exited with code 1: FileNotFoundError: \[Errno 2\] No such file or directory: 'nosuchprogram'"),
    ("JSON that is none", "import json\njson.loads('{')\n", "exited with code 1: json.decoder.JSONDecodeError: .*"),
    ("an abort", "import os\nos.abort()\n", "was killed by SIGABRT.*"),
    ("a segmentation fault", "import ctypes\nctypes.string_at(0)\n", "was killed by SIGSEGV.*"),
    ("somebody's kill", f"import os\nos.kill(os.getpid(), {int(signal.SIGKILL)})\n", "was killed by SIGKILL.*"),
    ("bytes that are no text", "import sys\nsys.stderr.buffer.write(b'\\xff\\xfe\\n')\nraise ValueError('\\x1b[2Jcleared')\n",
     "exited with code 1: ValueError: cleared"),
]

TORCH = [
    ("no GPU", "import torch\ntorch.zeros(1, device='cuda')\n",
     "exited with code 1: RuntimeError: (Found no NVIDIA driver|No CUDA GPUs).*"),
    ("shapes", "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)\n",
     r"exited with code 1: RuntimeError: mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"),
    ("an exception after init_process_group", "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
     "raise ValueError('bad batch')\n", "exited with code 1: ValueError: bad batch"),
    ("a chain of them", "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
     "try:\n    {}['x']\nexcept KeyError:\n    raise RuntimeError('no x')\n", "exited with code 1: RuntimeError: no x"),
    ("no process group", "import torch.distributed as dist\ndist.barrier()\n",
     "exited with code 1: ValueError: Default process group has not been initialized, .*"),
    ("an unknown backend", "import torch.distributed as dist\ndist.init_process_group('nosuch')\n",
     "exited with code 1: AssertionError: Unknown backend type nosuch"),
    ("NCCL without GPUs", "import torch.distributed as dist\ndist.init_process_group('nccl')\n",
     "exited with code 1: ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
    ("a checkpoint's keys", "import torch\ntorch.nn.Linear(1, 1).load_state_dict({'module.weight': torch.ones(1, 1)})\n",
     r"exited with code 1: RuntimeError: Error\(s\) in loading state_dict for Linear:"),
    ("a checkpoint that is none", "import torch\nopen('c.pt', 'wb').write(b'x' * 100)\ntorch.load('c.pt')\n",
     "exited with code 1: _pickle.UnpicklingError: .*"),
    ("two backward passes",
     "import torch\nx = torch.ones(1, requires_grad=True)\ny = (x * x).sum()\ny.backward()\ny.backward()\n",
     "exited with code 1: RuntimeError: Trying to backward through the graph a second time.*"),
]


class FirstLines(BedTestCase):
    def check(self, name, script, end, environment=None):
        with self.subTest(name):
            result = subprocess.run([DDPRUN, self.bed.write("train.py", script)], stdin=subprocess.DEVNULL, capture_output=True,
                                    env={**self.bed.environment, "CUDA_VISIBLE_DEVICES": "", **(environment or {})}, text=True,
                                    errors="replace", cwd=self.bed.folder, timeout=PATIENCE, check=False)
            self.assertEqual(1, result.returncode, result.stderr)
            lines = [line for line in result.stderr.splitlines() if line.startswith("ddprun: error: ")]
            self.assertEqual(1, len(lines), result.stderr)
            self.assertRegex(lines[0], f"^{WORKER}(?:{end})$")
            # Where the cause is on the screen, no page about tracebacks is recommended.
            if ": " in end:
                self.assertNotIn("To enable traceback see", result.stderr)

    def test_there_are_forty(self):
        self.assertGreaterEqual(len(PLAIN) + len(TORCH), 40)

    def test_scripts_without_torch(self):
        for name, script, end in PLAIN:
            self.check(name, script, end)

    @unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
    def test_scripts_with_torch(self):
        for name, script, end in TORCH:
            self.check(name, script, end, {"PYTHON_EXEC": TORCH_PYTHON})

    def test_a_restart_names_the_cause(self):
        script = self.bed.write("train.py", "raise ValueError('bad batch')\n")
        agent = self.bed.run("ddprun", ["--max_restarts", 1, script])
        self.assert_status(1, agent, PATIENCE)
        self.assertRegex(agent.text(), re.compile(r"restart 1 of 1 .*exited with code 1: ValueError: bad batch"))

    def test_a_node_beside_it_names_the_cause(self):
        """A worker's words reach the node that it doesn't run on."""
        script = self.bed.write("train.py", "import os, signal\nif os.environ['RANK'] == '1':\n"
                                            "    raise ValueError('bad batch')\nsignal.pause()\n")
        words = ["--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{free_port()}"]
        nodes = [self.bed.run(f"node{rank}", [*words, "--node_rank", rank, script]) for rank in (0, 1)]
        for node in nodes:
            self.assert_status(1, node, PATIENCE)
            self.assertRegex(node.text(), r"the job failed: worker rank 1 on \S+ exited with code 1: ValueError: bad batch\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
