#!/usr/bin/env python3
"""Lightning's Trainer with elastic.DDPStrategy() (docs/ELASTIC.md): a run in which workers are killed in steps, validations,
checkpoints and between epochs ends as an undisturbed one, in what is trained, logged, saved and counted, and in the processes
that weren't killed.
"""

import collections
import csv
import os
import random
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

from bed import FRAMEWORKS, LAUNCHERS, ROOT, SLOW, WHOLE_ONLY, free_port  # noqa: E402
from elastic_test import AHEAD, ElasticCase  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SCRIPT = os.path.join(ROOT, "tests", "support", "elastic_lightning.py")
PATIENCE = 120 * SLOW
SIZE = 180  # samples of an epoch


def has_package(python, name):
    return os.access(python, os.X_OK) and subprocess.run([python, "-c", f"import {name}"], stderr=subprocess.DEVNULL,
                                                         check=False).returncode == 0


class LightningCase(ElasticCase):
    maxDiff = None
    python = os.environ.get("DDPRUN_TEST_PYTHON", LAUNCHERS)

    def setUp(self):
        super().setUp()
        if not os.access(self.python, os.X_OK):
            self.skipTest(f"no {self.python}: run scripts/setup")
        self.bed.environment["PYTHON_EXEC"] = self.python

    def begin(self, *forms, name="job", kills="", options=(), ahead=AHEAD):
        """(the agent, the journal, the event log) of a job."""
        journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", 3, *ahead, "--event_log", events.path, *options, SCRIPT, journal.path,
                                    self.bed.path(f"{name}.folder"), *forms],
                             env={"OMP_NUM_THREADS": "1", "ELASTIC_KILLS": kills})
        return agent, journal, events

    def facts(self, job, status=0):
        """What is the same in each run of a job, at its end."""
        agent, journal, _ = job
        self.assert_status(status, agent, PATIENCE)
        self.bed.follower.refresh()
        steps = collections.defaultdict(set)
        for line in journal.find("step"):
            steps[line["rank"], line["step"], tuple(line["samples"])].add((line["epoch"], line["loss"], str(line["shown"])))
        return {"end": {(line["rank"], line["digest"]) for line in journal.find("end")}, "steps": dict(steps),
                "validated": {(line["rank"], line["step"], line["value"]) for line in journal.find("validated")},
                "names": len({line["name"] for line in journal.find("ready")}), "log": self.log_of(journal.path)}

    @staticmethod
    def log_of(path):
        """The rows of the CSV log. A new rank 0 may write some again."""
        with open(path.replace(".steps", ".folder/csv/version_0/metrics.csv"), encoding="utf-8", newline="") as file:
            return {tuple(sorted(row.items())) for row in csv.DictReader(file)}

    def check_samples(self, facts, first):
        """Each sample is in one batch of each epoch. first: a step, of three times four samples."""
        seen = collections.Counter()
        for (_, _, samples), lines in facts["steps"].items():
            seen.update((next(iter(lines))[0], sample) for sample in samples)
        self.assertEqual({1}, set(seen.values()))
        self.assertEqual(-12 * first % SIZE, len(seen) % SIZE)

    def check(self, *forms, kills, first=0, **options):
        kills = kills.split()
        undisturbed = self.facts(self.begin(*forms, name="undisturbed", **options))
        self.check_samples(undisturbed, first)
        job = self.begin(*forms, kills=",".join(kills), **options)
        self.assertEqual(undisturbed, self.facts(job))
        self.check_marks(job[1])
        self.check_processes(job[2], len(kills))
        self.check_said_seconds(job[0], [line["recoveries"] for line in job[1].find("end")])

    def check_processes(self, events, kills, workers=3):
        """No worker was started for another reason than the end of its predecessor."""
        self.assertEqual(workers + kills, len(events.find("worker_started")))
        self.assertEqual((workers - 1) * kills, len(events.find("worker_kept")))


class Kills(LightningCase):
    """GENERATION:RANK:EVENT:STEP."""

    def test_in_a_step_a_validation_a_checkpoint_and_at_the_end(self):
        self.check(kills="1:1:pass:7 2:0:validation:15 3:2:validated:30 4:0:step:45 5:1:saving:45")

    def test_in_each_of_the_first_steps(self):
        """When the layout of DDP's buckets is new."""
        self.check(kills="1:1:pass:1 2:2:pass:2 3:0:pass:3 4:1:pass:4")

    def test_in_an_accumulation_and_its_validation(self):
        self.check("accumulate", "often", "bf16", "workers", kills="1:1:pass:7 2:2:validation:10 3:0:pass:17 4:1:saving:24")

    @WHOLE_ONLY
    def test_metrics_and_callbacks_of_others(self):
        self.check("metrics", kills="1:1:pass:7 2:2:step:15 3:0:pass:18")

    @WHOLE_ONLY
    def test_early_stopping(self):
        self.check("early", kills="1:2:step:15 2:0:validated:30")

    @WHOLE_ONLY
    def test_at_the_beginning_of_an_epoch_and_right_after_a_validation(self):
        self.check(kills="1:1:pass:0 2:2:epoch:15 3:0:pass:15 4:1:step:30 5:0:saving:45")

    @WHOLE_ONLY
    def test_a_node_comes_and_goes(self):
        """All begin anew, and no restart is charged."""
        meet = ["--nproc_per_node", 2, "--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                "--local_addr", "127.0.0.1", "--rdzv_conf"]
        first = self.begin(name="first", options=[*meet, "is_host=1,last_call_timeout=0.01"])
        self.wait(lambda: len(first[2].find("worker_can_rejoin")) == 2 and len(first[1].find("pass")) > 4, "passes", first[0])
        second = self.begin(name="second", options=[*meet, "is_host=0"])
        self.bed.wait(lambda: second[1].find("pass"), "passes of four workers", PATIENCE, [first[0], second[0]])
        second[0].signal(signal.SIGKILL)
        self.assert_status(0, first[0], PATIENCE)
        self.assertNotIn("restart 1", first[0].text())

    def test_after_a_checkpoint_was_resumed(self):
        """It was saved in the midst of an epoch."""
        self.facts(self.begin("save", name="given"))
        for name in ("job", "undisturbed"):
            os.makedirs(self.bed.path(f"{name}.folder"))
            os.link(self.bed.path("given.folder/given.ckpt"), self.bed.path(f"{name}.folder/given.ckpt"))
        self.check("resume", first=20, kills="1:1:pass:23 2:0:validated:30")


class Package(LightningCase):
    """lightning.pytorch instead of pytorch_lightning."""

    python = os.environ.get("DDPRUN_TEST_PYTHON", FRAMEWORKS)

    @WHOLE_ONLY
    def test_a_kill(self):
        if not has_package(self.python, "lightning.pytorch"):
            self.skipTest(f"no lightning in {self.python}: run scripts/test --only frameworks")
        self.check("lightning", kills="1:1:pass:7 2:0:saving:15")


@WHOLE_ONLY
class Anywhere(LightningCase):
    def test_kills_at_random_moments(self):
        random_ = random.Random(drawn_seed())
        undisturbed = self.facts(self.begin("often", name="undisturbed"))
        job = self.begin("often")
        for number in range(6):
            lines = 18 * (number + 1) + random_.randrange(12)
            self.wait(lambda: len(job[1].find("pass")) >= lines, f"pass {lines}", job[0])
            self.wait(lambda: len(job[2].find("worker_can_rejoin")) >= 3 + number, "the newcomer's arrival", job[0])
            self.kill(job[2], random_.randrange(3))
        self.assertEqual(undisturbed, self.facts(job))
        self.check_processes(job[2], 6)

    def test_two_at_once(self):
        undisturbed = self.facts(self.begin(name="undisturbed"))
        job = self.begin(kills="1:0:pass:20,1:2:pass:20")
        self.assertEqual(undisturbed, self.facts(job))
        self.assertEqual(5, len(job[2].find("worker_started")))

    def test_twin_with_lightnings_strategy_all_are_started_anew(self):
        job = self.begin("plain", kills="1:1:pass:7", options=("--max_restarts", 1))
        self.assert_status(0, job[0], PATIENCE)
        self.bed.follower.refresh()
        self.assertEqual([], job[2].find("worker_kept"))
        self.assertEqual(6, len(job[2].find("worker_started")))

    def test_under_torchrun(self):
        """It is Lightning's own strategy."""
        ends = []
        for forms in ([], ["plain"]):
            name = f"torchrun{len(forms)}"
            process = self.bed.start_process(name, [
                self.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", SCRIPT,
                self.bed.path(f"{name}.steps"), self.bed.path(f"{name}.folder"), *forms], output=self.bed.path(f"{name}.out"),
                env={**self.bed.environment, "OMP_NUM_THREADS": "1"})
            self.assert_status(0, process, PATIENCE)
            journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
            self.bed.follower.refresh()
            ends.append({(line["rank"], line["digest"]) for line in journal.find("end")})
        self.assertEqual(ends[0], ends[1])

    def test_what_is_refused(self):
        for form, words in (("manual", "manual optimization"), ("iterable", "not with Stream"), ("random", "order of"),
                            ("swa", "the callback StochasticWeightAveraging"), ("several", "multiple optimizers"),
                            ("lbfgs", "not with LBFGS"), ("closure", "an optimizer_step() that calls the closure by itself"),
                            ("asked", "Watch.state_dict() has failed: AttributeError"),
                            ("sum", "'late', which is logged in on_train_batch_end")):
            with self.subTest(form):
                agent, journal, _ = self.begin(form, name=form, ahead=("--warm", "off"))
                self.assert_status(1, agent, PATIENCE)
                self.assertIn(words, agent.text())
                self.bed.follower.refresh()
                self.assertLess(max([line["step"] for line in journal.find("step")], default=0), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
