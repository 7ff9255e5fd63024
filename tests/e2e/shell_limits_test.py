#!/usr/bin/env python3
"""Limits of the shell that starts ddprun: a file that may not grow costs the file and not the job, and where no descriptor is
left one line says which limit that is and what raises it. And folders that can't be written."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase  # noqa: E402

CURE = "ulimit -n 4096"
SECCOMP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "seccomp.py")


class ShellLimits(BedTestCase):
    def ddprun(self, words, limit=None, status=0, before=()):
        """Runs `ddprun words…` under a limit of this shell: (name, value), or (name, (soft, hard)). Returns all that it wrote."""
        def lower():
            # The hard limit, too, as with ulimit: it can't be raised again.
            resource.setrlimit(limit[0], limit[1] if isinstance(limit[1], tuple) else (limit[1], limit[1]))

        result = subprocess.run([*before, DDPRUN, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False, cwd=self.bed.folder,
                                env=self.bed.environment, timeout=30 * SLOW, preexec_fn=lower if limit else None)
        if status is not None:
            self.assertEqual(status, result.returncode, result.stdout)
        return result.stdout


class FileSizes(ShellLimits):
    # More than the limit, in each stream.
    SCRIPT = ("import os\n"
              "for _ in range(40): os.write(1, b'o' * 1000 + b'\\n'), os.write(2, b'e' * 1000 + b'\\n')\n"
              "print('FINAL', flush=True)\n")
    IGNORED = "grep SigIgn /proc/self/status"

    def ignores(self, text):
        return bool(int(text.split()[-1], 16) & 1 << (signal.SIGXFSZ - 1))

    def test_a_log_file_that_may_not_grow_costs_the_file_alone(self):
        script = self.bed.write("big.py", self.SCRIPT)
        for kib in (0, 1, 8, 64):
            with self.subTest(kib=kib):
                words = ["--standalone", "--nproc_per_node", 2, "--tee", 3, "--log_dir", f"logs{kib}", script]
                text = self.ddprun(words, limit=(resource.RLIMIT_FSIZE, kib << 10))
                self.assertEqual(2, text.count("FINAL"), text)
                self.assertNotIn("Traceback", text)
                # One line for each file, with the limit and its cure.
                lines = [line for line in text.splitlines() if "; the rest of this worker's output is not kept there" in line]
                self.assertEqual(4 if kib < 40 else 0, len(lines), text)
                for line in lines:
                    self.assertIn(f"/logs{kib}/", line)
                    self.assertIn(f"a file of this process may have {kib << 10} bytes (ulimit -f): raise that", line)

    def test_workers_have_the_signal_as_torchruns(self):
        """Default again, in a program that doesn't ignore it by itself, as Python does."""
        words = ["--standalone", "--no_python", "sh", "-c", self.IGNORED]
        self.assertFalse(self.ignores(self.ddprun(words)))
        # Negative control: the agent, the parent of the worker's parent, ignores the signal.
        parent = ["--standalone", "--no_python", "sh", "-c", "grep SigIgn /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/status"]
        self.assertTrue(self.ignores(self.ddprun(parent)))

    def test_so_has_what_a_forked_worker_starts(self):
        """Children of a worker forked from the warm interpreter (--warm on) get what Python restores, as after an exec."""
        script = self.bed.write("child.py", "import subprocess\nsubprocess.run(['grep', 'SigIgn', '/proc/self/status'])\n")
        words = ["--standalone", "--preload", "decimal", "--event_log", self.bed.path("events.jsonl"), script]
        cold, warm = (self.ddprun(["--warm", mode, *words]) for mode in ("off", "on"))
        self.assertTrue(self.bed.event("worker_started", warm=True))
        self.assertFalse(self.ignores(cold), cold)
        self.assertEqual(cold.split()[-1], warm.split()[-1])


class OpenFiles(ShellLimits):
    SCRIPT = "print('FINAL', flush=True)\n"

    def words(self, workers, *options):
        return ["--standalone", "--nproc_per_node", workers, *options, self.bed.write("train.py", self.SCRIPT)]

    def test_too_few_for_any_job_are_one_line(self):
        for limit in (16, 24):
            for workers in (1, 2, 16):
                with self.subTest(limit=limit, workers=workers):
                    text = self.ddprun(self.words(workers), limit=(resource.RLIMIT_NOFILE, limit), status=1)
                    self.assertIn(f"this process may have {limit} open files (ulimit -n)", text)
                    self.assertIn(CURE, text)
                    self.assertEqual(1, len(text.splitlines()), text)

    def rings(self):
        """How many of the agent's files are libuv's for itself, from version 1.45 on."""
        agent = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # the parent of the worker's parent
        text = self.ddprun(["--standalone", "--no_python", "sh", "-c", f"ls -l /proc/{agent}/fd"])
        self.assertIn("[eventpoll]", text)
        return text.count("[io_uring]")

    def test_enough_for_torchrun_are_enough(self):
        for limit in (28 + self.rings(), 32, 48, 64):
            for workers in (1, 2, 16):
                with self.subTest(limit=limit, workers=workers):
                    text = self.ddprun(self.words(workers), limit=(resource.RLIMIT_NOFILE, limit))
                    self.assertEqual(workers, text.count("FINAL"), text)

    def test_too_few_for_the_workers_are_one_failure(self):
        words = self.words(16, "--tee", 3, "--log_dir", "logs")
        text = self.ddprun(words, limit=(resource.RLIMIT_NOFILE, 64), status=1)
        self.assertIn("Too many open files (errno 24, EMFILE); this process may have 64 open files (ulimit -n)", text)
        self.assertIn(CURE, text)
        self.assertNotIn("a tie", text)
        self.assertEqual(1, text.count(") could not be started: "), text)
        # Negative control.
        text = self.ddprun(words, limit=(resource.RLIMIT_NOFILE, 256))
        self.assertEqual(16, text.count("FINAL"))

    def test_a_soft_limit_is_the_workers_alone(self):
        """Many workers' streams need more than it allows; where the hard one allows them, ddprun has them."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        script = self.bed.write("soft.py", "import resource\nprint('FINAL', *resource.getrlimit(resource.RLIMIT_NOFILE))\n")
        for options in ((), ("--tee", 3, "--log_dir", "logs")):
            with self.subTest(options=options):
                text = self.ddprun(["--standalone", "--nproc_per_node", 16, *options, script],
                                   limit=(resource.RLIMIT_NOFILE, (20, hard)))
                self.assertEqual(16, text.count(f"FINAL 20 {hard}"), text)


class SystemCalls(ShellLimits):
    """A filter refuses system calls, as an older container runtime's does, or as an older kernel."""

    def filtered(self, refused, words, status=0):
        return self.ddprun(words, status=status, before=[sys.executable, SECCOMP, *refused, "--"])

    def test_a_job_needs_no_pidfds(self):
        for refused in (["pidfd_open=ENOSYS"], ["pidfd_open=EPERM"],
                        ["pidfd_open=ENOSYS", "pidfd_send_signal=ENOSYS", "clone3=ENOSYS", "close_range=ENOSYS"]):
            with self.subTest(refused=refused):
                shell = 'echo "FINAL $TORCHELASTIC_RESTART_COUNT"; [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]'
                text = self.filtered(refused, ["--standalone", "--nproc_per_node", 2, "--max_restarts", 1, "--no_python",
                                               "sh", "-c", shell])
                self.assertEqual(2, text.count("FINAL 1"), text)

    def test_workers_inherit_no_descriptor(self):
        """Workers inherit none, as with torchrun, even if the kernel can't close them by one call (Linux 5.9, and
        CLOSE_RANGE_CLOEXEC 5.11)."""
        worker = 'for fd in 0 1 2 7 8 9 77; do [ ! -e /proc/self/fd/$fd ] || echo "HAS $fd"; done; echo FINAL'
        opened = ["bash", "-c", 'exec 8</dev/null 77</dev/null; exec "$@"', "bash"]
        for refused in ([], ["close_range=ENOSYS"], ["close_range=EPERM"], ["close_range=EINVAL"]):
            with self.subTest(refused=refused):
                text = self.ddprun(["--standalone", "--no_python", "sh", "-c", worker],
                                   before=[*opened, sys.executable, SECCOMP, *refused, "--"])
                self.assertEqual(["HAS 0", "HAS 1", "HAS 2", "FINAL"],
                                 [line for line in text.splitlines() if line.startswith(("HAS", "FINAL"))], text)

    def test_the_end_of_the_service_is_seen(self):
        """The end is seen with pidfds, and without."""
        shell = ("kill -KILL $(grep -l ddprun-service /proc/[0-9]*/comm | cut -d/ -f3 | while read pid; do "
                 "[ \"$(cut -d' ' -f4 /proc/$pid/stat)\" = \"$(cut -d' ' -f4 /proc/$PPID/stat)\" ] && echo $pid; done); "
                 "[ \"$TORCHELASTIC_RESTART_COUNT\" = 1 ]")
        for refused in ([], ["pidfd_open=ENOSYS"]):
            with self.subTest(refused=refused):
                text = self.filtered(refused, ["--standalone", "--max_restarts", 1, "--no_python", "sh", "-c", shell])
                self.assertIn("was killed by SIGKILL", text)

    def test_doctor_says_what_refuses_them(self):
        for refused in ("pidfd_open=ENOSYS", "pidfd_open=EPERM"):
            text = " ".join(self.filtered([refused], ["doctor"], status=None).split())
            self.assertIn("[pidfd_refused]", text)
            self.assertIn(f"Linux {os.uname().release} has that call, so a seccomp filter refuses it", text)
        self.assertNotIn("[pidfd_refused]", self.ddprun(["doctor"], status=None))

    def test_a_filter_of_clone3_is_no_limit(self):
        """torchrun gets no thread, either. glibc takes clone(2) itself where the kernel knows no clone3; before 2.34, always."""
        script = self.bed.write("train.py", "print('FINAL', flush=True)\n")
        if tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) < (2, 34):
            self.assertIn("FINAL", self.filtered(["clone3=EPERM"], ["--standalone", script]))
            return
        text = self.filtered(["clone3=EPERM"], ["--standalone", script], status=1)
        self.assertIn("a seccomp filter refuses clone3(2)", text)
        self.assertNotIn("ulimit -u", text)
        self.assertIn("FINAL", self.filtered(["clone3=ENOSYS"], ["--standalone", script]))


class TemporaryFolders(ShellLimits):
    def setUp(self):
        super().setUp()
        # A view of the file systems with a read-only /tmp, as in a container with a read-only root.
        self.view = ["unshare", "--user", "--map-root-user", "--mount"]
        if subprocess.run([*self.view, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("this user may not make a mount namespace")

    def without_tmp(self, mount, cwd, status, more=""):
        """Runs ddprun where each folder for temporary files, and of `more`, is a file system of its own, made by `mount`."""
        mounts = f'for dir in /tmp /var/tmp /usr/tmp {more}; do [ ! -d $dir ] || {{ {mount}; }}; done; cd "$0" && exec "$@"'
        work = os.path.join(os.path.expanduser("~"), ".cache")
        os.makedirs(work, exist_ok=True)
        folder = tempfile.mkdtemp(dir=work)
        self.addCleanup(shutil.rmtree, folder)
        script = os.path.join(folder, "train.py")
        with open(script, "w", encoding="utf-8") as sink:
            sink.write("import os\nprint('FINAL', os.environ.get('TORCHELASTIC_ERROR_FILE'), flush=True)\n")
        environment = {name: value for name, value in self.bed.environment.items()
                       if name not in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")}
        environment["XDG_CACHE_HOME"] = folder
        result = subprocess.run([*self.view, "sh", "-c", mounts, cwd or folder, DDPRUN, "--standalone", "--tee", "3", script],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment,
                                cwd=folder, timeout=30 * SLOW)
        self.assertEqual(status, result.returncode, result.stdout)
        return result.stdout, folder

    def test_the_working_folder_is_the_last_of_them(self):
        for mount in ("mount -t tmpfs -o ro none $dir",
                      "mount -t tmpfs -o size=16k none $dir && head -c 65536 /dev/zero > $dir/x || true"):
            with self.subTest(mount=mount):
                text, folder = self.without_tmp(mount, "", 0)
                self.assertRegex(text, f"FINAL {folder}/torchelastic_")
                self.assertEqual([], [name for name in os.listdir(folder) if name.startswith("ddprun_")])

    def test_where_only_memory_can_be_written(self):
        text, _ = self.without_tmp("mount -t tmpfs -o ro none $dir", "/proc", 0)
        self.addCleanup(shutil.rmtree, re.search("/dev/shm/torchelastic_[^/]+", text)[0])
        self.assertRegex(text, "FINAL /dev/shm/torchelastic_")

    def test_where_nothing_can_be_written_the_variable_is_named(self):
        text, _ = self.without_tmp("mount -t tmpfs -o ro none $dir", "/proc", 1, more="/run/user/0 /dev/shm")
        self.assertIn("Read-only file system (errno 30, EROFS)", text)
        self.assertIn("nor can any other be written of /tmp, /var/tmp, /usr/tmp, /dev/shm, /run/user/0, /proc: ", text)
        self.assertIn("set TMPDIR to a folder of yours", text)
        self.assertNotIn("FINAL", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
