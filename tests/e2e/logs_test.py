#!/usr/bin/env python3
"""The folders and files of the workers' logs (docs/LOGS.md), and what is left of them at the end."""

import glob
import os
import re
import signal
import stat
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import PATIENCE, SLOW, SLOWNESS, BedTestCase, free_port  # noqa: E402
from timeline import ends_within  # noqa: E402

TALK = """import os, sys
rank = os.environ['LOCAL_RANK']
print('out', rank, flush=True)
print('err', rank, file=sys.stderr, flush=True)
"""


class LogsTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.logs = self.bed.path("logs")
        self.temporary = self.bed.path("tmp")
        os.mkdir(self.temporary)
        self.bed.environment["TMPDIR"] = self.temporary
        self.bed.environment.pop("XDG_RUNTIME_DIR", None)

    def run_script(self, text, *options, status=0):
        """(stdout, stderr) of one run, as sorted lists of lines."""
        script = self.bed.write("script.py", text)
        with open(self.bed.path("out"), "wb") as out, open(self.bed.path("err"), "wb") as err:
            agent = self.bed.run("ddprun", [*options, script], stdout=out, stderr=err)
            self.assert_status(status, agent)
        return [sorted(self.read(self.bed.path(name)).splitlines()) for name in ("out", "err")]

    @staticmethod
    def read(path):
        with open(path, "rb") as source:
            return source.read()

    def files(self, folder=None):
        """{path below the run's folder: bytes}."""
        found = {}
        for path in glob.glob(os.path.join(folder or self.logs, "*", "**"), recursive=True):
            if os.path.isfile(path):
                found["/".join(os.path.relpath(path, folder or self.logs).split("/")[1:])] = self.read(path)
        return found


class Layout(LogsTestCase):
    def test_redirects_to_torchruns_paths(self):
        """Check 73."""
        out, _ = self.run_script(TALK, "--nproc_per_node", 2, "-r", 3, "--rdzv_id", "job/7", "--log_dir", self.logs)
        self.assertEqual([], out)
        self.assertRegex(os.listdir(self.logs)[0], r"^job_7_[a-z0-9]{8}$")
        self.assertEqual({"attempt_0/0/stdout.log": b"out 0\n", "attempt_0/0/stderr.log": b"err 0\n",
                          "attempt_0/1/stdout.log": b"out 1\n", "attempt_0/1/stderr.log": b"err 1\n"}, self.files())

    def test_tee_prefixes_the_console_and_not_the_files(self):
        """Check 74."""
        out, err = self.run_script(TALK, "--nproc_per_node", 2, "-t", 3, "--log_dir", self.logs)
        self.assertEqual([b"[default0]:out 0", b"[default1]:out 1"], out)
        self.assertEqual([b"[default0]:err 0", b"[default1]:err 1"], [line for line in err if line.startswith(b"[")])
        self.assertEqual(b"out 1\n", self.files()["attempt_0/1/stdout.log"])

    def test_prefix_names_host_and_node_on_request(self):
        """Check 75: unknown names stay; ours are there besides torchrun's."""
        self.bed.environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = \
            "<${role_name}|${rank}|${local_rank}|${foo}|${group_rank}|${host}> "
        out, _ = self.run_script(TALK, "-t", 1, "--log_dir", self.logs)
        self.assertEqual([f"<default|0|0|${{foo}}|0|{os.uname().nodename}> out 0".encode()], out)

    def test_streams_of_single_ranks(self):
        """Check 76."""
        self.run_script(TALK, "--nproc_per_node", 3, "-t", "0:1,1:2", "-r", "0:2", "--log_dir", self.logs)
        self.assertEqual(["attempt_0/0/stderr.log", "attempt_0/0/stdout.log", "attempt_0/1/stderr.log"], sorted(self.files()))

    def test_only_listed_ranks_are_on_the_console(self):
        """Check 77."""
        out, err = self.run_script(TALK, "--nproc_per_node", 3, "--local_ranks_filter", 1, "--log_dir", self.logs)
        self.assertEqual([b"out 1"], out)
        self.assertEqual([b"err 1"], [line for line in err if line.startswith(b"err")])
        self.assertEqual({}, self.files())

    def test_unlisted_ranks_keep_their_teed_files(self):
        """Check 77."""
        out, err = self.run_script(TALK, "--nproc_per_node", 3, "--local_ranks_filter", 1, "-t", 1, "--log_dir", self.logs)
        self.assertEqual([b"[default1]:out 1"], out)
        self.assertEqual([b"err 1"], [line for line in err if line.startswith(b"err")])
        self.assertEqual({f"attempt_0/{rank}/stdout.log": f"out {rank}\n".encode() for rank in range(3)}, self.files())

    def test_lines_with_a_wanted_text_are_copied(self):
        """Check 79: `a,,b` is the text `a,b`."""
        script = TALK + "print('has a,b in it'); print('only a'); print('and c')\n"
        self.run_script(script, "--nproc_per_node", 2, "-t", 3, "--duplicate_stdout_filters", "a,,b,c",
                        "--duplicate_stderr_filters", "err 1", "--log_dir", self.logs)
        files = self.files()
        self.assertEqual(sorted([b"[default0]:has a,b in it", b"[default0]:and c",
                                 b"[default1]:has a,b in it", b"[default1]:and c"]),
                         sorted(files["attempt_0/filtered_stdout.log"].splitlines()))
        self.assertEqual(b"[default1]:err 1\n", files["attempt_0/filtered_stderr.log"])

    def test_without_tee_the_filtered_file_is_empty(self):
        """The same as in torchrun. With /dev/null, where torchrun crashes, there is no file."""
        self.run_script(TALK, "-r", 1, "--duplicate_stdout_filters", "out", "--log_dir", self.logs)
        self.assertEqual(b"", self.files()["attempt_0/filtered_stdout.log"])
        out, _ = self.run_script(TALK, "-t", 1, "--duplicate_stdout_filters", "out", "--log_dir", "/dev/null")
        self.assertEqual([b"out 0"], out)

    def test_no_files_at_all(self):
        """Check 78."""
        script = TALK + "print('<' + os.environ['TORCHELASTIC_ERROR_FILE'] + '>')\n"
        out, _ = self.run_script(script, "--log_dir", "/dev/null", "-t", 3)
        self.assertEqual([b"<>", b"out 0"], out)
        self.assertEqual([], os.listdir(self.temporary))

    def test_mode_is_the_umasks(self):
        """torchrun's folder has mode 0700 whatever the umask says."""
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        self.run_script(TALK, "-t", 1, "-r", 2, "--log_dir", self.logs)
        os.umask(old)
        for path in glob.glob(os.path.join(self.logs, "**"), recursive=True):
            wanted = 0o750 if os.path.isdir(path) else 0o640
            self.assertEqual(wanted, stat.S_IMODE(os.stat(path).st_mode), path)


class Attempts(LogsTestCase):
    def test_restarts_are_side_by_side(self):
        """Check 80."""
        script = ("import os, sys\nn = os.environ['TORCHELASTIC_RESTART_COUNT']\nprint('attempt', n)\n"
                  "sys.exit(0 if n == '2' else 4)\n")
        self.run_script(script, "--max_restarts", 2, "-r", 1, "--log_dir", self.logs)
        self.assertEqual({f"attempt_{n}/0/stdout.log": f"attempt {n}\n".encode() for n in range(3)}, self.files())

    def test_a_membership_restart_keeps_the_logs_before_it(self):
        """Check 80: the restart count is the same, so the folder is named by its generation. torchrun deletes it."""
        options = ["--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                   "-r", 1, "--log_dir", self.logs]
        first = self.bed.agent("first", [*options, "--rdzv_conf", "is_host=1,last_call_timeout=0.1"],
                               worker=("print=hello", "reach", "wait"))
        before = self.bed.workers(1, 1, alive=[first])
        self.bed.wait(lambda: self.bed.journal.find("reach"), "the worker has printed", alive=[first])
        second = self.bed.agent("second", [*options, "--rdzv_conf", "is_host=0"], worker=("print=hello", "wait"))
        after = self.bed.workers(2, 2, alive=[first, second])
        self.bed.finish(after)
        for agent in (first, second):
            self.assert_status(0, agent)
        self.assertEqual([0, 0, 0], [line["restart_count"] for line in before + after])
        folders = sorted("/".join(path.split("/")[-3:-1]) for path in
                         glob.glob(os.path.join(self.logs, "*", "attempt_*", "0", "stdout.log")))
        self.assertEqual(["attempt_0.g2/0", "attempt_0/0", "attempt_0/0"], folders)
        self.assertEqual({b"hello\n"}, {self.read(path) for path in glob.glob(
            os.path.join(self.logs, "*", "attempt_*", "0", "stdout.log"))})


class Flood(LogsTestCase):
    """A worker that writes without end holds up neither the others nor memory, and nothing is lost."""

    # 64 MB of numbered lines from rank 0, then SIGKILL without a newline; rank 1 says one word and waits for the end.
    SCRIPT = """import os, signal, sys, time
if os.environ['RANK'] == '1':
    print('quiet', flush=True)
    signal.pause()
for block in range(640):
    data = memoryview(b''.join(b'%07d %091d\\n' % (block * 1000 + i, 0) for i in range(1000)))
    while data:
        data = data[os.write(1, data):]
os.write(1, b'last words')
os.kill(os.getpid(), signal.SIGKILL)
"""

    def test_a_flood_is_whole_to_its_last_byte_and_bounded_in_memory(self):
        script = self.bed.write("script.py", self.SCRIPT)
        with open(self.bed.path("out"), "wb") as out, open(self.bed.path("err"), "wb") as err:
            agent = self.bed.run("ddprun", ["--nproc_per_node", 2, "-t", 1, "--log_dir", self.logs, script],
                                 stdout=out, stderr=err)
            self.assert_status(1, agent, 60 * SLOW)
        whole = b"".join(b"%07d %091d\n" % (i, 0) for i in range(640_000)) + b"last words"
        files = self.files()
        self.assertEqual(len(whole), len(files["attempt_0/0/stdout.log"]))
        self.assertTrue(whole == files["attempt_0/0/stdout.log"], "the file differs from what was written")
        shown = self.read(self.bed.path("out")).splitlines()
        self.assertEqual([b"[default1]:quiet"], [line for line in shown if line.startswith(b"[default1]")])
        self.assertTrue([b"[default0]:" + line for line in whole.splitlines()] ==
                        [line for line in shown if line.startswith(b"[default0]")], "the console differs")

    def test_a_console_that_nobody_reads_holds_back_one_worker_only(self):
        """Rank 0 floods stdout, which is full; rank 1's stderr is another console and goes on. Memory stays small."""
        script = self.bed.write("script.py", """import os, sys
if os.environ['RANK'] == '1':
    for line in range(1000):
        print('line', line, file=sys.stderr, flush=True)
    import signal
    with open(sys.argv[1], 'a') as journal:
        journal.write('{"t": 1, "event": "done"}\\n')
    signal.pause()
while True:
    os.write(1, b'y' * 65535 + b'\\n')
""")
        source, sink = os.pipe()
        with open(self.bed.path("err"), "wb") as err:
            agent = self.bed.run("ddprun", ["--nproc_per_node", 2, "-t", 3, "--log_dir", self.logs, script,
                                            self.bed.journal.path], stdout=sink, stderr=err)
        os.close(sink)
        self.bed.wait(lambda: self.bed.journal.find("done"), "rank 1 to have said its lines", alive=[agent])
        with open(f"/proc/{agent.pid}/status", encoding="utf-8") as status:
            peak_kib = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))
        if SLOWNESS == 1:  # a sanitizer's memory is its own affair
            self.assertLess(peak_kib, 64 << 10)
        agent.signal(signal.SIGTERM)
        os.close(source)
        self.assert_status(1, agent, 10 * SLOW)


class Leftovers(LogsTestCase):
    """Nothing stays in the temporary directory but what somebody may want to read."""

    def test_a_success_leaves_nothing(self):
        self.run_script(TALK)
        self.assertEqual([], os.listdir(self.temporary))

    def test_files_stay_and_are_in_torchruns_place(self):
        self.run_script(TALK, "-r", 3)
        folder, = os.listdir(self.temporary)
        self.assertRegex(folder, r"^torchelastic_[a-z0-9]{8}$")
        self.assertEqual({"attempt_0/0/stdout.log": b"out 0\n", "attempt_0/0/stderr.log": b"err 0\n"},
                         self.files(os.path.join(self.temporary, folder)))

    def test_a_failure_leaves_the_error_file_that_the_report_names(self):
        agent = self.bed.agent("ddprun", [], worker=("error-file=RuntimeError: no", "exit=1"))
        self.assert_status(1, agent)
        path = re.search(r"error_file: (\S+)", agent.text()).group(1)
        self.assertTrue(path.startswith(self.temporary), path)
        self.assertIn(b"RuntimeError: no", self.read(path))
        self.assertEqual(["torchelastic"], [name.split("_")[0] for name in os.listdir(self.temporary)])

    def start(self):
        agent = self.bed.agent("ddprun", [])
        self.bed.workers(1, 1, alive=[agent])
        self.assertEqual(2, len(os.listdir(self.temporary)))
        return agent, self.bed.events.find("agent_start")[0]["keeper"]

    def test_a_killed_agent_leaves_nothing(self):
        agent, keeper = self.start()
        agent.signal(signal.SIGKILL)
        agent.wait(PATIENCE)
        self.assertTrue(ends_within(keeper, PATIENCE))
        self.assertEqual([], os.listdir(self.temporary))

    def test_without_its_keeper_a_killed_agent_leaves_its_folders(self):
        """Negative control: it is the keeper that removes them."""
        agent, keeper = self.start()
        agent.signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        agent.signal(signal.SIGKILL)
        agent.wait(PATIENCE)
        self.assertTrue(ends_within(keeper, PATIENCE))
        self.assertEqual(2, len(os.listdir(self.temporary)))

    def test_an_agent_that_a_signal_ends_leaves_nothing(self):
        agent, keeper = self.start()
        agent.signal(signal.SIGTERM)
        self.assert_status(1, agent, 10 * SLOW)
        self.assertTrue(ends_within(keeper, PATIENCE))
        self.assertEqual([], os.listdir(self.temporary))


if __name__ == "__main__":
    unittest.main(verbosity=2)
