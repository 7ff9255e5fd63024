#!/usr/bin/env python3
"""The pages do what they show: each command of a ```console block runs, in the situation and with the fault that the page speaks
of, and what it prints is compared with what stands there (pages.py says how, page_case.py follows a page)."""

import os
import shutil
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import cluster  # noqa: E402
import pages  # noqa: E402
from bed import CACHE, ROOT, TORCH_PYTHON, torch_is_there  # noqa: E402
from elsewhere import ELSEWHERE, UNRUN  # noqa: E402
from page_case import BIN, ENDPOINT, PageTestCase, is_listed  # noqa: E402

JOB7 = f"--nnodes 2 --nproc_per_node 2 --max_restarts 3 {ENDPOINT} --rdzv_id job7"
# With MIN:MAX nodes the first start waits for further ones: torchrun's 30 s.
SOON = {"PET_RDZV_CONF": "last_call_timeout=1"}
DIGITS = os.path.join(CACHE, "digits", "digits.csv.gz")
HELLO = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"


class Watching(PageTestCase):
    """Pages about a job that runs: two nodes, and rank 3 was killed once."""

    def a_killed_rank(self, options=""):
        self.training()
        agents = self.job(f"{JOB7} {options} train.py --lr 0.1")
        self.bed.wait(lambda: "step 120 loss" in agents[0].text(), "a hundred steps", alive=agents)
        self.kill(3)
        return agents

    def test_status(self):
        agents = self.a_killed_rank()
        self.open("docs/STATUS.md")
        self.run_page("ddprun status", retry=True)
        self.end(agents)

    def test_events(self):
        agents = self.a_killed_rank()
        self.open("docs/EVENTS.md")
        self.run_page("ddprun events", retry=True)
        self.end(agents)
        self.close()

    def test_a_fault_that_is_absent_is_missed(self):
        """Negative control: the page's lines about it aren't printed."""
        self.training()
        agents = self.job(f"{JOB7} train.py --lr 0.1")
        self.open("docs/EVENTS.md")
        (command,) = self.next_block().commands()
        with self.assertRaisesRegex(AssertionError, "not printed: +5 .* round_closing"):
            self.carry_out(command)
        self.end(agents)

    def test_goodput(self):
        agents = self.a_killed_rank()
        self.open("docs/GOODPUT.md")
        self.run_page("ddprun status", retry=True)
        self.end(agents)
        self.close()


class Jobs(PageTestCase):
    """Pages whose commands are jobs, or ask one that is there."""

    def test_status_page(self):
        """After the block of test_status."""
        self.training()
        self.open("docs/STATUS.md")
        self.next_block()
        agents = self.job(f"{JOB7} train.py --lr 0.1")
        self.kill(3)
        for service in self.bed.events.find("service_started"):
            os.kill(int(service["service_pid"]), signal.SIGSTOP)
        self.run_page("ddprun status", hosts=1, on=1, retry=True)
        os.kill(int(service["service_pid"]), signal.SIGCONT)
        self.end(agents)
        os.unlink(self.bed.path("done"))
        self.next_block()  # of test_ended
        self.run_page("ddprun --standalone --status_page", until_shown=True)
        self.close()

    def test_ended(self):
        """The third block of the page: a job that failed, and one after it that didn't."""
        self.training()
        agents = self.job(f"{JOB7} --max_restarts 1 --tee 3 --log_dir /tmp/logs train.py --lr 0.1")
        self.kill(3)
        self.kill(3, last=True)
        for agent in agents:
            self.assert_status(1, agent)
        self.end(self.job(f"{JOB7} --rdzv_id job8 train.py --lr 0.3", workers=12))
        self.open("docs/STATUS.md")
        self.next_block()
        self.next_block()
        self.run_page("ddprun status --ended")

    def test_recovery(self):
        self.training()
        self.open("docs/RECOVERY.md")
        self.run_page("ddprun", kill=1, until_shown=True, env={"PET_EVENT_LOG": self.bed.events.path})
        self.close()

    @unittest.skipUnless(shutil.which("curl"), "there is no curl")
    def test_monitoring(self):
        self.training()
        agents = self.job(f"--nproc_per_node 2 {ENDPOINT} --rdzv_id job7 train.py", nodes=1, workers=2,
                          env={"TORCHELASTIC_HEALTH_CHECK_PORT": "8081"})
        self.open("docs/MONITORING.md")
        self.run_page("curl", retry=True)
        self.end(agents)
        self.close()

    def test_logs(self):
        self.training()
        self.have(secret="s\n")
        os.chmod(self.bed.path("secret"), 0o600)
        agents = self.job(f"{JOB7} --token_file secret --tee 3 --log_dir logs train.py")
        self.open("docs/LOGS.md")
        self.run_page("ddprun logs", until_shown=True)
        self.end(agents)
        self.close()

    def test_signals(self):
        self.training()
        agents = self.job(f"--nnodes 1:4 --rdzv_conf last_call_timeout=5 {ENDPOINT} train.py", nodes=4)
        self.bed.wait(lambda: "step 120 loss" in agents[3].text(), "training", alive=agents)
        self.open("docs/SIGNALS.md")
        self.run_page("ddprun drain")
        self.assert_status(75, agents[3])
        self.end(agents[:3])
        self.close()

    def test_security(self):
        self.have(train_py=HELLO)
        self.stand_in("scp", f'for file; do [ $file = host1:/etc/ddprun/ ] || cp "$file" {self.bed.path("etc")} || exit 1; done')
        os.mkdir(self.bed.path("etc"))
        os.chmod(self.bed.path("etc"), 0o700)
        self.open("docs/SECURITY.md")
        self.run_page("ddprun certs", replace=[("--tls_dir /etc/ddprun", f"--tls_dir {self.bed.path('etc')}")],
                      together="--nnodes 2")
        self.close()

    def test_chaos(self):
        self.training()
        self.have(plan_yaml="faults: [{fault: worker_killed, worker: 1, step: 40, times: 1}]\n")
        self.open("docs/CHAOS.md")
        self.run_page("ddprun chaos", hosts=2, env={"STEPS": "200", **SOON})
        self.assertTrue(os.path.exists(self.bed.path("chaos.json")))
        self.close()

    def test_warm(self):
        self.training()
        self.open("docs/WARM.md")
        (command,) = self.next_block().commands()
        # Without an optimizer of torch's nothing is learned soon.
        agent = self.start(command.words, env={"PET_EVENT_LOG": self.bed.events.path, "PET_PRELOAD": "decimal"})
        self.bed.event("warm_ready", alive=[agent])
        self.bed.event("worker_started", count=4, alive=[agent])
        self.kill(3, workers_per_node=4)
        self.assertTrue(self.bed.event("worker_started", generation="2")["warm"])
        self.end([agent])
        self.have(train_py=HELLO)
        os.mkdir(self.bed.path("daemon"), 0o700)
        self.bed.environment["DDPRUN_DAEMON_DIR"] = self.bed.path("daemon")
        self.run_page("ddprun daemon &")
        self.assert_status(0, self.start("ddprun daemon status"))
        self.assert_status(0, self.start("ddprun daemon stop"))
        self.close()

    def test_binding(self):
        self.have(train_py=HELLO)
        self.open("docs/BINDING.md")
        self.run_page("HWLOC_SYNTHETIC")
        self.close()

    def test_config(self):
        self.have(train_py=HELLO, train_sbatch="#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun --nnodes 2 train.py\n")
        self.bed.write("default_config.yaml",
                       "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 2\n")
        self.open("docs/CONFIG.md")
        self.run_page("ddprun config", hosts=2, only_here="ddprun config", env=SOON)
        self.run_page("ddprun convert")
        self.close()

    def test_env(self):
        self.open("docs/ENV.md")
        self.run_page("ddprun env", elsewhere=True)
        self.run_page("ddprun env --samples", elsewhere=True)
        self.run_page("ddprun env --nnodes 2", hosts=2)
        self.run_page("ddprun doctor", elsewhere=True)
        self.close()

    def test_install(self):
        self.have(train_py=HELLO)
        self.open("docs/INSTALL.md")
        self.run_page("ddprun --standalone", replace=[("man ddprun", "ddprun --help")])
        self.close()

    def test_python(self):
        self.have(train_py=HELLO)
        # Stands in for the package: it takes its options, and runs the script.
        self.bed.write("debugpy.py", "import runpy, sys\nassert sys.argv[1] == '--listen', sys.argv\nprint(sys.argv[2])\n"
                       "runpy.run_path(sys.argv[-1], run_name='__main__')\n")
        self.open("docs/PYTHON.md")
        self.run_page("ddprun --nproc_per_node 2 -m debugpy")
        self.close()


class Measured(PageTestCase):
    """Pages with commands that measure the machine."""

    def test_preflight(self):
        self.have(train_py=HELLO)
        self.open("docs/PREFLIGHT.md")
        self.run_page("ddprun test", hosts=2)
        self.close()


class Programs(PageTestCase):
    """Pages about programs in C++."""

    def test_examples(self):
        self.built()
        self.have(gpt_yaml="steps: 1\nbach_size: 16\n")
        self.open("docs/EXAMPLES.md")
        self.run_page("ddprun --no_python")
        self.close()

    def built(self):
        os.makedirs(self.bed.path("build/release"))
        os.symlink(BIN, self.bed.path("build/release/bin"))
        os.symlink(os.path.join(ROOT, "examples"), self.bed.path("examples"))

    def test_cpp(self):
        self.open("docs/CPP.md")
        self.run_page("ddprun --no_python", kill=1, until_shown=True, env={"PET_EVENT_LOG": self.bed.events.path},
                      replace=[("digits --epochs", f"digits --data {DIGITS} --epochs")])
        self.close()


class Tutorials(PageTestCase):
    """Each writes its files, and runs all of its commands."""

    def follow(self, page, commands):
        self.open(f"docs/tutorials/{page}.md")
        for _ in range(commands):
            self.run_page()
        self.close()

    def test_a_wrong_page_fails(self):
        """Negative control: by its words, its numbers, a line too few, its status."""
        def change(command, name):
            if name == "status":
                command.status = 1
            elif name == "few":
                command.shown = command.shown[1:-1]
            else:
                command.shown[-1] = command.shown[-1].replace(*name)
        for name in (("meets", "misses"), ("1 of 2", "1 of 3"), "few", "status"):
            self.open("docs/tutorials/first-run.md")
            (command,) = self.next_block().commands()
            change(command, name)
            with self.subTest(name), self.assertRaises(AssertionError):
                self.carry_out(command)

    def test_first_run(self):
        self.have(train_py=HELLO)
        self.follow("first-run", 5)

    @unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
    def test_from_torchrun(self):
        self.have(train_py=HELLO)
        # torchrun itself isn't what the page is about.
        self.stand_in("torchrun", "exit 0")
        self.open("docs/tutorials/from-torchrun.md")
        self.run_page("torchrun", hosts=2, env=SOON)
        self.run_page("ddprun", env={"PYTHON_EXEC": TORCH_PYTHON})
        self.run_page("ddprun --debug")
        self.close()

    def test_from_accelerate(self):
        self.follow("from-accelerate", 1)

    def test_slurm(self):
        self.follow("slurm", 2)

    def test_kubernetes(self):
        self.follow("kubernetes", 2)

    def test_failures(self):
        self.follow("failures", 1)

    @unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
    def test_elastic(self):
        self.bed.environment.update(PYTHONPATH=os.path.join(ROOT, "python"), PYTHON_EXEC=TORCH_PYTHON)
        self.follow("elastic", 2)


class Counted(unittest.TestCase):
    """How much of what the pages show is run."""

    def shown(self):
        return [block for page in pages.pages() for block in pages.blocks(page) if block.shows_commands()]

    def test_commands_stand_in_console_blocks(self):
        self.assertEqual([], [str(block) for block in self.shown() if block.language != "console"])

    def test_at_least_95_of_100_are_run(self):
        blocks = self.shown()
        unrun = [block for block in blocks if is_listed(block, UNRUN)]
        self.assertGreaterEqual(len(unrun), len(UNRUN), "a block that is said not to be run isn't there")
        share = 1 - len(unrun) / len(blocks)
        print(f"{len(blocks)} blocks of commands, {len(unrun)} are not run: {100 * share:.1f} %")
        self.assertGreaterEqual(share, 0.95)

    def test_each_page_is_followed(self):
        """Each page has a test that follows it; close() in that test fails while a block is left."""
        with open(__file__, encoding="utf-8") as source:
            text = source.read()
        for page in {block.page for block in self.shown() if not is_listed(block, {**ELSEWHERE, **UNRUN})}:
            name = os.path.basename(page).removesuffix(".md")
            self.assertTrue(f'open("{page}")' in text or f'follow("{name}"' in text, f"no test follows {page}")

    def test_what_runs_elsewhere_is_there(self):
        for key, names in ELSEWHERE.items():
            self.assertTrue(any(is_listed(block, {key: ""}) for block in self.shown()), key)
            for name in names.split():
                file, test = name.split("::")
                path = os.path.join(ROOT, *(() if file.startswith("bench/") else ("tests",)), file + ".py")
                with open(path, encoding="utf-8") as source:
                    self.assertIn(f"def {test}(", source.read(), key)


class Compared(unittest.TestCase):
    """Negative controls: pages with mistakes."""

    def test_samples_and_words(self):
        printed = ["job job7: running for 20.2 s, generation 2, restarts 1 of 3", "  0  host0#36  2  78 to 127  host0"]
        self.assertEqual([], pages.differences(["job job7: running for 1 h 2 min, generation 2, restarts 1 of 3",
                                                "0  host0#4711  2  48210 to 48211  host0"], printed))
        for wrong in ("job job7: running for 1 h 2 min, generation 3, restarts 1 of 3", "0  host0/0  2  48210 to 48211  host0",
                      "0  host1#4711  2  48210 to 48211  host0", "0  host0#4711  2  48210  host0"):
            self.assertEqual([f"not printed: {wrong}"], pages.differences([wrong, "…"], printed))

    def test_lines_that_are_left_out(self):
        self.assertEqual(["not shown: b"], pages.differences(["a"], ["a", "b"]))
        self.assertEqual([], pages.differences(["a", "…"], ["a", "b"]))
        self.assertEqual(["not printed: a"], pages.differences(["a", "a", "…"], ["a", "b"]), "shown twice, printed once")
        self.assertEqual([], pages.differences([], ["nothing was shown"]))


if __name__ == "__main__":
    cluster.main()
