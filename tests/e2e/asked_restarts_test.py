#!/usr/bin/env python3
"""Restarts that were asked for are made: with --max_restarts 8, a program that fails six times in a row and then works ends
with 0, in whatever way it fails, as with torchrun. With DDPRUN_TEST_WHOLE=1 beside torchrun itself."""

import concurrent.futures
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import PATIENCE, TORCH_PYTHON, WHOLE, BedTestCase, torch_ahead, torch_is_there  # noqa: E402

FAILURES = 6

# Which ranks fail.
RANKS = ("01", "0", "1", "0")

# What a start does while it is one of the first six.
WAYS = {
    "an exception": "raise ValueError('a bad value')",
    "an exception without words": "raise RuntimeError",
    "an exception that differs each time": "raise ValueError(os.getpid())",
    "an exception of many lines": "raise ValueError('\\n'.join('line %d' % i for i in range(50)))",
    "an exception of a peer's words": "raise RuntimeError('Connection reset by peer')",
    "a failed assertion": "assert False, 'shapes differ'",
    "a missing key": "{}['model']",
    "a missing file": "open('/nonexistent/data.bin')",
    "a folder that isn't mounted yet": "os.listdir('/nonexistent/data')",
    "a missing module": "import flash_attn_of_nobody",
    "a missing name in a module": "from os import nothing_of_that_name",
    "a syntax error": "exec('def f(:')",
    "a module that fails while it is imported": "exec('raise ImportError(\"libcudart.so.12: cannot open shared object file\")')",
    "a refused connection": "__import__('socket').create_connection(('127.0.0.1', 1))",
    "a port in use": "import socket; s = socket.create_server(('127.0.0.1', 0)); "
                     "socket.create_server(('127.0.0.1', s.getsockname()[1]), reuse_port=True)",
    "a time-out": "raise TimeoutError('timed out')",
    "a permission": "raise PermissionError(13, 'Permission denied', '/dev/nvidia0')",
    "no memory, as Python says it": "import resource; resource.setrlimit(resource.RLIMIT_AS, [1 << 30] * 2); bytearray(1 << 40)",
    "no memory, as torch says it": "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
    "a recursion": "f = lambda: f(); f()",
    "an exception of a group": "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
    "a KeyboardInterrupt of its own": "raise KeyboardInterrupt",
    "an exit with 1": "sys.exit(1)",
    "an exit with 2": "sys.exit(2)",
    "an exit with 255": "sys.exit(-1)",
    "an exit with words": "sys.exit('no GPU is free')",
    "an exit at once": "os._exit(3)",
    "an abort": "os.abort()",
    "a segmentation fault": "__import__('ctypes').string_at(0)",
    "std::terminate": "__import__('ctypes').CDLL('libstdc++.so.6')._ZSt9terminatev()",
    "a thread that ends it": "import threading; threading.Thread(target=os._exit, args=(4,)).start(); threading.Event().wait()",
    "a child that fails": "__import__('subprocess').run(['sh', '-c', 'exit 5'], check=True)",
    **{f"{name} to itself": f"os.kill(os.getpid(), signal.{name})"
       for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGALRM", "SIGXCPU")},
}

SCRIPT = """import os, signal, sys
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
rank, count = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
{first}
if count < {failures} and rank in {ranks!r}:
    {way}
    sys.exit("the way to fail didn't fail")
if count < {failures}:
    signal.pause()  # a healthy peer, that works until it is stopped
os.write(1, f"FINAL {{rank}}\\n".encode())
"""

# In torch's own calls, which a restart has to begin anew.
TORCH_WAYS = {
    "instead of joining": ("", "if count < 6 and rank == '1': sys.exit(7)", ""),
    "after a step": ("", "", "if count < 6 and rank == '1': raise ValueError('a bad batch')"),
}
TORCH_SCRIPT = """import os, signal, sys
import torch
import torch.distributed as dist
rank, count = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
{before}
{instead}
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
{after}
dist.barrier()
os.write(1, f"FINAL {{rank}}\\n".encode())
"""

# Imports torchrun once and forks it for each script of the arguments: NAME SCRIPT, twice as many as scripts.
TORCHRUN = """import os, sys
import torch.distributed.run as run
names, scripts = sys.argv[1::2], sys.argv[2::2]
def start(name, script):
    pid = os.fork()
    if pid:
        return pid
    with open(name, "wb") as sink:
        os.dup2(sink.fileno(), 1), os.dup2(sink.fileno(), 2)
    try:
        run.main(["--standalone", "--nproc_per_node", "2", "--max_restarts", "8", script])
        os._exit(0)
    except SystemExit as error:
        os._exit(error.code or 0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
left, running = list(zip(names, scripts)), {}
while left or running:
    while left and len(running) < 4:
        name, script = left.pop(0)
        running[start(name, script)] = name
    pid, status = os.wait()
    print(os.waitstatus_to_exitcode(status), running.pop(pid), flush=True)
"""


class AskedRestarts(BedTestCase):
    def write_ways(self):
        """{way: script}: by turns all ranks fail, or one alone does; half of them have written something before."""
        scripts = {}
        for number, (name, way) in enumerate(WAYS.items()):
            first = "print('loading', flush=True)" if number % 2 else ""
            text = SCRIPT.format(first=first, ranks=RANKS[number % 4], failures=FAILURES, way=way)
            scripts[name] = self.bed.write(f"way{number}.{RANKS[number % 4]}.py", text)
        return scripts

    def run_all(self, scripts, *options):
        """{way: (status, output, report)} of a job each, some side by side: of one worker where only rank 0 fails."""
        def run(script):
            report = script + ".json"
            workers = 1 if script.endswith(".0.py") else 2
            command = ["--standalone", "--nproc_per_node", workers, "--report_file", report, *options, script]
            agent = self.bed.run(os.path.basename(script), command)
            status = agent.wait(PATIENCE)
            with open(report, encoding="utf-8") as source:
                return status, agent.text(), json.load(source)

        with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            return dict(zip(scripts, pool.map(run, scripts.values())))

    def test_six_failures_in_each_way(self):
        self.assertGreaterEqual(len(WAYS), 34)
        ended = self.run_all(self.write_ways(), "--max_restarts", 8, "--restart_backoff", "100ms")
        for way, (status, text, report) in ended.items():
            with self.subTest(way=way):
                self.assertEqual((0, "all_succeeded", FAILURES), (status, report["rule"], report["restart_count"]), text)
                self.assertIn("FINAL 0\n", text)

    def test_with_the_pauses_of_the_default(self):
        """Beside the six failures they are all that is waited for; and the console says what is known of the program."""
        script = self.bed.write("train.py", SCRIPT.format(first="", ranks="01", failures=FAILURES, way="sys.exit(9)"))
        (status, text, _), = self.run_all({"": script}, "--max_restarts", 8).values()
        self.assertEqual(0, status, text)
        for times in (3, 4, 5, 6):
            self.assertIn(f"exited with code 9; the same failure {times} times in a row", text)

    def test_twin_who_asks_for_less_gets_it(self):
        script = self.bed.write("train.py", SCRIPT.format(first="", ranks="01", failures=FAILURES, way="sys.exit(9)"))
        for options, expected in ((("--max_restarts", 8, "--crash_loop", 4), (93, "crash_loop", 3)),
                                  (("--max_restarts", 5), (1, "restarts_spent", 5))):
            with self.subTest(options=options):
                (status, text, report), = self.run_all({"": script}, "--restart_backoff", "100ms", *options).values()
                self.assertEqual(expected, (status, report["rule"], report["restart_count"]), text)
                self.assertNotIn("FINAL", text)

    @unittest.skipUnless(torch_is_there(), "needs torch 2.11, which scripts/setup installs")
    def test_in_the_calls_of_torch(self):
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON
        scripts = {}
        for number, (name, (before, instead, after)) in enumerate(TORCH_WAYS.items()):
            text = TORCH_SCRIPT.format(before=before, instead=instead, after=after)
            scripts[name] = self.bed.write(f"torch{number}.py", text)
        options = ["--max_restarts", 8, "--restart_backoff", "100ms", *torch_ahead()]
        for way, (status, text, report) in self.run_all(scripts, *options).items():
            with self.subTest(way=way):
                self.assertEqual((0, FAILURES), (status, report["restart_count"]), text)

    @unittest.skipUnless(WHOLE and torch_is_there(), "beside torchrun: with DDPRUN_TEST_WHOLE=1")
    def test_torchrun_completes_each(self):
        words = []
        ways = {}
        for name, script in self.write_ways().items():
            words += [script + ".torchrun", script]
            ways[script + ".torchrun"] = name
        result = subprocess.run([TORCH_PYTHON, "-c", TORCHRUN, *words], stdout=subprocess.PIPE, text=True, check=True,
                                cwd=self.bed.folder, env=self.bed.environment, timeout=30 * PATIENCE)
        statuses = {ways[path]: int(status) for status, path in (line.split(" ", 1) for line in result.stdout.splitlines())}
        self.assertEqual(dict.fromkeys(WAYS, 0), statuses)


if __name__ == "__main__":
    unittest.main(verbosity=2)
