#!/usr/bin/env python3
"""Checks 1 to 38: the command line."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
from contract import Differs, Expect, Row, check  # noqa: E402

# The torchruns' options, in the dashed spelling.
OPTIONS = (
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval start-method "
    "event-log-handler role module no-python run-path log-dir redirects tee local-ranks-filter duplicate-stdout-filters "
    "duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding signals-to-handle "
    "virtual-local-rank").split()
NEWER_OPTIONS = ["log-line-prefix-template", "shutdown-timeout", "print-completion"]


def both_spellings(options):
    return tuple(f"--{name}\\b" for option in options for name in {option, option.replace("-", "_")})


STACK = Differs(51, why="one line instead of a stack; the same status")


def refused(number, name, arguments, *words, status=1, theirs=None, differs=None, **options):
    """A row for input that both refuse with this status and these words; ours without a stack."""
    ours = Expect(status, err=words, none=("Traceback",))
    return Row(number, name, arguments, ours=ours, theirs=Expect(status, err=words if theirs is None else theirs),
               differs=differs or STACK, **options)


C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint")

TABLE = [
    Row(1, "no_arguments", (), Expect(2, err=("(?i)usage",))),
    Row(2, "help", ("--help",), ours=Expect(0, out=("usage", "--help-all")), pinned=Expect(0, out=both_spellings(OPTIONS)),
        theirs=Expect(0, out=both_spellings(OPTIONS + NEWER_OPTIONS)),
        differs=Differs(why="a screen to begin with, and --help-all for all options")),
    Row(3, "unknown_option", ("--bogus", "S"), Expect(2, err=("unrecognized arguments.*--bogus",))),
    *(refused(4, "nnodes_" + re.sub(r"\W", "_", value), (f"--nnodes={value}", "S"), "nnodes", value, theirs=theirs)
      for value, theirs in (("0", ("min_nodes",)), ("2:1", ("min_nodes",)), ("1:2:3", ("nnodes",)), ("a", ("ValueError",)))),
    refused(5, "no_workers", ("--nproc-per-node=0", "S"), "nproc", theirs=("AssertionError",)),
    refused(6, "nproc_is_a_word", ("--nproc-per-node=foo", "S"), "foo"),
    refused(7, "gpu_without_one", ("--nproc-per-node=gpu", "S"), "Cuda is not available"),
    refused(10, "negative_restarts", ("--max-restarts=-1", "S"), "max.restarts", theirs=("AssertionError",)),
    refused(10, "restarts_are_a_word", ("--max-restarts=x", "S"), "max.restarts", "x", status=2),
    refused(11, "no_interval", ("--monitor-interval=0", "S"), "monitor.interval", theirs=("AssertionError",)),
    refused(12, "start_method", ("--start-method=foo", "S"), "foo", status=2),
    Row(12, "start_method_by_environment", ("W",), Expect(0, workers=1), env={"PET_START_METHOD": "foo"}),
    refused(13, "numa_binding", ("--numa-binding=foo", "S"), "foo", status=2),
    Row(14, "nproc_with_underscores", ("--nproc_per_node=2", "W"), Expect(0, workers=2)),
    Row(14, "nproc_with_dashes", ("--nproc-per-node", "2", "W"), Expect(0, workers=2)),
    Row(15, "abbreviation", ("--standal", "W"), Expect(0, workers=1)),
    Row(15, "abbreviation_of_two_spellings", ("--nproc", "2", "W"), ours=Expect((0, 2)), theirs=Expect(2, err=("ambiguous",)),
        differs=Differs(why="two spellings of one option are no ambiguity")),
    Row(16, "last_one_wins", ("--role", "a", "--role", "b", "W"), Expect(0, env={"ROLE_NAME": "b"}, workers=1)),
    Row(17, "the_scripts_arguments", ("W", "--help", "-m", "--nproc-per-node", "4"),
        Expect(0, workers=1, argv=("--help", "-m", "--nproc-per-node", "4"))),
    Row(18, "macros", ("W", "${local_rank}", "$local_rank", "${x}", "$$y"),
        Expect(0, workers=1, argv=("0", "0", "${x}", "$y"))),
    Row(20, "module_and_program", ("--no-python", "-m", "S"), ours=Expect(1, err=("no.python", "module|-m")),
        theirs=Expect(1, err=("ValueError",)), differs=STACK),
    Row(21, "program", ("--no-python", "echo", "${local_rank}"), Expect(0, out=(r"\A0\n\Z",))),
    refused(22, "no_such_program", ("--no-python", "nosuchbinary"), "nosuchbinary"),
    Row(23, "other_interpreter", ("S", "z"), Expect(0, out=(r"\A-u \S+/script.py z\n\Z",)),
        env={"PYTHON_EXEC": "/bin/echo", "PET_PRELOAD": ""}),  # with DDPRUN_TEST_WARM it would be started ahead as well
    Row(24, "nproc_by_environment", ("W",), Expect(0, workers=2), env={"PET_NPROC_PER_NODE": "2"}),
    Row(24, "command_line_beats_environment", ("--nproc-per-node", "1", "W"), Expect(0, workers=1),
        env={"PET_NPROC_PER_NODE": "2"}),
    Row(25, "flag_by_environment", ("W",), Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": "[0-9a-f-]{36}"}),
        env={"PET_STANDALONE": "1"}),
    Row(25, "flag_off_by_environment", ("W",), Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": "[0-9a-f-]{36}"}),
        pinned=Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": "none"}), env={"PET_STANDALONE": "0"}),
    Row(25, "flag_by_word", ("W",), ours=Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": "[0-9a-f-]{36}"}),
        theirs=Expect(1, err=("ValueError",)), env={"PET_STANDALONE": "true"}, differs=Differs(53)),
    refused(26, "redirects_digit", ("-r", "4", "S"), "4"),
    refused(26, "redirects_comma", ("-r", "0:1,", "S"), "0:1,"),
    Row(26, "redirects_of_rank_10", ("-r", "10:1", "W"), ours=Expect(0, workers=1), theirs=Expect(1, err=("10:1",)),
        differs=Differs(40)),
    refused(28, "ranks_filter", ("--local-ranks-filter=a", "S"), "local.ranks.filter"),
    *(refused(29, "configuration_" + name, (f"--rdzv-conf={value}", *C10D, "localhost:0", "S"), *words)
      for name, value, words in (("no_value", "a", ()), ("no_key", "==1", ()), ("comma", "a=b,", ()))),
    refused(30, "backend", ("--rdzv-backend=foo", "S"), "not registered", "foo"),
    refused(31, "port_too_large", (*C10D, "localhost:99999", "S"), "(?i)port", "99999"),
    refused(31, "host_with_a_blank", (*C10D, "a b:1", "S"), "(?i)host", "a b"),
    refused(32, "static_without_a_port", ("--rdzv-backend=static", "--rdzv-endpoint=localhost", "S"), "port"),
    *(refused(34, "value_of_" + re.sub(r"\W", "_", pair), (f"--rdzv-conf={pair}", *C10D, "localhost:0", "S"),
              pair.split("=", maxsplit=1)[0], theirs=("ValueError",))
      for pair in ("is_host=maybe", "join_timeout=x", "join_timeout=0", "store_type=foo")),
    Row(35, "empty_id", ("--rdzv-id=", *C10D, "localhost:0", "W"),
        ours=Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": "[0-9a-f-]{36}"}),
        theirs=Expect(0, workers=1, env={"TORCHELASTIC_RUN_ID": r"\d{16,}"}),
        differs=Differs(why="a random id is a UUID with --standalone and here")),
    refused(37, "logs_specs", ("--logs-specs=foo", "S"), "foo"),
    refused(38, "event_log_handler", ("--event-log-handler=foo", "S"), "foo"),
]


@contract.rows(TABLE)
class CommandLine(contract.ContractCase):
    @check(8, 9, recorded=True, per_processor=True,
           differs=Differs(43, why="the processors that this process may use, not those of the host"))
    def test_08_as_many_as_processors(self):
        for launcher in self.launchers():
            counts = {}
            for word in ("cpu", "auto"):
                job = self.job(launcher)
                job.private = True
                self.assertEqual(0, job.run([f"--nproc-per-node={word}", "W"], env={"OMP_NUM_THREADS": "1"}).status)
                counts[word] = len(job.told())
            self.assertEqual(counts["cpu"], counts["auto"])
            most = len(os.sched_getaffinity(0)) if job.ours else os.cpu_count()
            self.assertTrue(1 <= counts["cpu"] <= most, counts)

    @check(8, recorded=True, per_processor=True, differs=Differs(43, only=jobs.PINNED))
    def test_08_affinity_counts(self):
        cpu = min(os.sched_getaffinity(0))
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            node = job.start_process("node", ["taskset", "-c", str(cpu), *jobs.private_network(), *launcher.command,
                                              "--nproc-per-node=cpu", jobs.PROBE], env=job.environment,
                                     output=job.path("node.stdout"))
            job.write("node.stderr", "")
            self.assertEqual(0, node.wait(launcher.patience))
            self.assertEqual(os.cpu_count() if launcher is jobs.PINNED else 1, len(job.told()))

    @check(19, recorded=True)
    def test_19_module(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            os.mkdir(job.path("pkg"))
            job.write("pkg/__init__.py", "")
            job.write("pkg/mod.py", "import probe\nprobe.tell()\n")
            ended = job.run(["-m", "pkg.mod", "a"], env={"PYTHONPATH": jobs.HERE + ":" + job.folder})
            self.assertEqual(0, ended.status, ended.err)
            self.assertEqual([["a"]], [line["arguments"] for line in job.told()])

    @check(27, recorded=True)
    def test_27_three_ways_to_write_a_short_option(self):
        for launcher in self.launchers():
            for words in (["-r3"], ["-r=3"], ["-r", "3"]):
                job = self.job(launcher)
                job.private = True
                script = job.script("print('out'); print('err', file=sys.stderr)\n")
                ended = job.run([*words, "--log-dir", "logs", script])
                self.assertEqual((0, "", False), (ended.status, ended.out, "err\n" in ended.err), words)
                files = {path.rsplit("/", 1)[1]: text for path, text in job.files("logs").items()}
                self.assertEqual(("out\n", "err\n"), (files["stdout.log"], files["stderr.log"]), words)

    @check(33, recorded=True)
    def test_33_c10d_with_nothing_else(self):
        """The service listens at localhost:29400; the run id is none; a warning speaks of master_addr."""
        probing = ("import socket\nprobe.tell()\n"
                   "socket.create_connection(('localhost', 29400), 5).close()\n")
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            ended = job.run(["--rdzv-backend=c10d", job.script(probing)])
            self.assertEqual(0, ended.status, ended.err)
            self.assertIn("master_addr", ended.err)
            self.assertEqual(["none"], [line["environment"]["TORCHELASTIC_RUN_ID"] for line in job.told()])

    @check(36, recorded=True, differs=STACK)
    def test_36_log_dir_is_a_file(self):
        for launcher in self.launchers():
            job = self.job(launcher)
            job.private = True
            ended = job.run(["--log-dir", job.write("file", ""), "-r", "3", job.script("")])
            self.assertEqual(1, ended.status)
            self.assertIn(job.path("file"), ended.err)
            if job.ours:
                self.check_refusal(ended)


if __name__ == "__main__":
    contract.main()
