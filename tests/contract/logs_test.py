#!/usr/bin/env python3
"""Checks 73 to 80: the workers' output, on the console and in files."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, check  # noqa: E402

TALK = "probe.tell()\nprint('out', probe.local_rank)\nprint('err', probe.local_rank, file=sys.stderr)\n"
# What launchers themselves say on stderr, not the workers.
_OWN_WORDS = re.compile(r"^(?:\[?[IWE]\d{4} .*|ddprun: .*|\*+.*|Setting OMP.*)\n", re.MULTILINE)


class Logs(contract.ContractCase):
    def talk(self, launcher, *options, body=TALK, nproc=1, env=None, log_dir="logs", status=0):
        """A job of one node that writes; its stderr without the launcher's own words."""
        job = self.job(launcher)
        job.private = True
        ended = job.run(["--nproc-per-node", nproc, *options, "--log-dir", log_dir, job.script(body)],
                        env={"OMP_NUM_THREADS": "1", **(env or {})})
        self.assertEqual(status, ended.status, ended.err)
        ended.err = _OWN_WORDS.sub("", ended.err)
        return job, ended

    def written(self, job):
        """{path below the run's folder: content}, without error files."""
        files = job.files("logs")
        for path in files:
            self.assertRegex(path, r"\Anone_[^/]{8}/" if job.launcher is jobs.PINNED else r"\A[0-9a-f-]{36}_[^/]{8}/")
        return {path.split("/", 1)[1]: text for path, text in files.items() if not path.endswith("error.json")}

    @check(73, recorded=True)
    def test_73_redirected(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "-r", 3, nproc=2)
            self.assertEqual(("", ""), (ended.out, ended.err))
            self.assertEqual({f"attempt_0/{rank}/{stream}.log": f"{stream[3:]} {rank}\n" for rank in (0, 1)
                              for stream in ("stdout", "stderr")}, self.written(job))

    @check(74, recorded=True)
    def test_74_shown_too(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "-t", 3)
            self.assertEqual(("[default0]:out 0\n", "[default0]:err 0\n"), (ended.out, ended.err))
            self.assertEqual({"attempt_0/0/stdout.log": "out 0\n", "attempt_0/0/stderr.log": "err 0\n"}, self.written(job))

    @check(75, recorded=True)
    def test_75_own_prefix(self):
        template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name}|${rank}|${local_rank}|${foo}> "}
        for launcher in self.launchers():
            _, ended = self.talk(launcher, "-t", 1, env=template)
            self.assertEqual("<default|0|0|${foo}> out 0\n", ended.out)

    @check(76, recorded=True)
    def test_76_by_rank(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "-t", "0:1,1:2", "-r", "0:2", nproc=2)
            self.assertEqual({"attempt_0/0/stdout.log": "out 0\n", "attempt_0/0/stderr.log": "err 0\n",
                              "attempt_0/1/stderr.log": "err 1\n"}, self.written(job))
            self.assertEqual(["[default0]:out 0", "out 1"], sorted(ended.out.splitlines()))
            self.assertEqual("[default1]:err 1\n", ended.err)

    @check(77, recorded=True)
    def test_77_only_rank_1_on_the_console(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "--local-ranks-filter", 1, nproc=3)
            self.assertEqual(("out 1\n", "err 1\n"), (ended.out, ended.err))
            self.assertEqual({}, self.written(job))

    @check(77, recorded=True)
    def test_77_files_of_all_ranks(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "--local-ranks-filter", 1, "-t", 1, nproc=3)
            self.assertEqual("[default1]:out 1\n", ended.out)
            self.assertEqual({f"attempt_0/{rank}/stdout.log": f"out {rank}\n" for rank in range(3)}, self.written(job))

    @check(78, recorded=True)
    def test_78_no_files(self):
        for launcher in self.launchers():
            job, ended = self.talk(launcher, "-t", 3, log_dir="/dev/null")
            self.assertEqual(("out 0\n", "err 0\n"), (ended.out, ended.err))
            self.assertEqual("", job.told()[0]["environment"]["TORCHELASTIC_ERROR_FILE"])

    @check(79, recorded=True)
    def test_79_lines_chosen_by_words(self):
        body = "for line in ('has a,b', 'has c', 'has a', 'has b'): print(line)\n"
        for launcher in self.launchers():
            job, _ = self.talk(launcher, "-t", 3, "--duplicate-stdout-filters", "a,,b,c", body=body)
            self.assertEqual(["[default0]:has a,b", "[default0]:has c"],
                             self.written(job)["attempt_0/filtered_stdout.log"].splitlines())

    @check(78, recorded=True, differs=Differs(39))
    def test_no_folder_is_left_behind(self):
        """Without --log-dir, after a job that ended well."""
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            self.assertEqual(0, job.run(["W"]).status)
            self.assertEqual(not job.ours, any(name.startswith("torchelastic_") for name in os.listdir(job.path("tmp"))))
            self.assertTrue(not job.ours or os.listdir(job.path("tmp")) == [])

    @check(80, recorded=True)
    def test_80_attempts_side_by_side(self):
        body = "print('attempt', probe.attempt)\nsys.exit(0 if probe.attempt else 7)\n"
        for launcher in self.launchers():
            job, _ = self.talk(launcher, "-r", 1, "--max-restarts", 1, body=body)
            self.assertEqual({f"attempt_{n}/0/stdout.log": f"attempt {n}\n" for n in (0, 1)}, self.written(job))

    @check(80, differs=Differs(38))
    def test_80_logs_outlive_a_change_of_membership(self):
        """torchrun deletes attempt_0 and makes it anew; the negative control is in rendezvous_test (check 83)."""
        body = "print('world', os.environ['WORLD_SIZE'], flush=True)\nprobe.wait()\n"
        for launcher in self.launchers():
            job = self.job(launcher)
            port = jobs.free_port()
            words = [*job.c10d("1:2", port, last_call_timeout=1), "-r", 1, "--log-dir"]
            first = job.start([*words, "first", job.script(body)], name="first")
            job.await_workers(1, world=1, alive=[first])
            second = job.start([*words, "second", job.script(body)], name="second")
            both = job.await_workers(2, world=2, alive=[first, second])
            job.finish(both)
            for node in (first, second):
                self.assertEqual(0, job.end(node).status)
            kept = sorted(text for path, text in job.files("first").items() if path.endswith("/stdout.log"))
            self.assertEqual(["world 1\n", "world 2\n"], kept)


if __name__ == "__main__":
    contract.main()
