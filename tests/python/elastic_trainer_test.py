#!/usr/bin/env python3
"""Hugging Face's Trainer and loops of Accelerate's that train through failures (docs/ELASTIC.md): a run with kills ends bit by
bit as an undisturbed one, in logs and checkpoints too, and workers that weren't killed keep their processes.
"""

import collections
import json
import os
import random
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import FRAMEWORKS, LAUNCHERS, ROOT, free_port  # noqa: E402
from elastic_test import PATIENCE, ElasticCase  # noqa: E402
from seeds import drawn_seed  # noqa: E402

# Workers are forks of an interpreter that has imported these.
AHEAD = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch._dynamo")
# What differs by a clock.
TIMES = ("per_second", "runtime")


class FrameworkCase(ElasticCase):
    script, python, modules = "", "", ""  # set by the classes below

    def setUp(self):
        super().setUp()
        if not os.access(self.python, os.X_OK):
            self.skipTest(f"no {self.python}: run scripts/test --only frameworks")
        self.bed.environment["PYTHON_EXEC"] = self.python
        self.program = os.path.join(ROOT, "tests", "support", self.script)

    def start_form(self, name, *forms, workers=3, options=()):
        journal = self.bed.follower.follow(self.bed.path(f"{name}.journal"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", workers, *AHEAD[:-1], f"{AHEAD[-1]},{self.modules}", "--event_log",
                                    events.path, *options, self.program, journal.path, *forms], env={"OMP_NUM_THREADS": "1"})
        return agent, journal, events

    def ends(self, agent, journal):
        """{rank: what it had at the end}"""
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: {key: value for key, value in line.items() if key not in ("t", "pid", "generation", "recoveries")}
                for line in journal.find("end")}

    @staticmethod
    def done(journal):
        """{(step, rank): what it was, as often as it was written down}"""
        steps = collections.defaultdict(list)
        for line in journal.find("step"):
            steps[line["step"], line["rank"]].append((line["samples"], line["rate"], line["loss"]))
        return steps

    def check_same(self, undisturbed, disturbed, kills):
        """Both are (agent, journal, event log) of jobs."""
        (agent, journal, _), (other, others, events) = undisturbed, disturbed
        self.assertEqual(self.ends(agent, journal), self.ends(other, others))
        steps = self.done(journal)
        for place, lines in self.done(others).items():
            for line in lines:
                self.assertEqual(steps[place][0], line, f"step and rank {place}")
        # No worker was started for another reason than the end of its predecessor.
        self.assertEqual(3 + kills, len(events.find("worker_started")))

    def kill_now_and_then(self, job, steps):
        agent, journal, events = job
        random_ = random.Random(drawn_seed())
        for step in steps:
            self.wait_for_step(journal, events, agent, step)
            self.kill(events, random_.randrange(3))


class Trainer(FrameworkCase):
    script, python = "elastic_trainer.py", FRAMEWORKS
    modules = "transformers.trainer,transformers.models.gpt2.modeling_gpt2"
    EACH_EPOCH = ("num_train_epochs=3", "gradient_accumulation_steps=2", "eval_strategy=epoch", "save_strategy=epoch",
                  "load_best_model_at_end=true")

    def checkpoints(self, name):
        """{file of a checkpoint: what is in it}; of those with times or paths only that they are there."""
        found, folder = {}, self.bed.path(f"{name}.journal.saved")
        for root, _, files in os.walk(folder):
            for file in files:
                path = os.path.join(root, file)
                with open(path, "rb") as stream:
                    data = stream.read()
                if file == "trainer_state.json":
                    state = json.loads(data)
                    state["best_model_checkpoint"] = os.path.basename(state["best_model_checkpoint"] or "")
                    state["log_history"] = [{key: value for key, value in line.items() if not any(word in key for word in TIMES)}
                                            for line in state["log_history"]]
                    data = json.dumps(state)
                found[os.path.relpath(path, folder)] = None if file == "training_args.bin" else data
        return found

    def test_kills_at_each_moment_of_a_step_and_of_what_follows(self):
        undisturbed = self.start_form("undisturbed", *self.EACH_EPOCH)
        self.assert_status(0, undisturbed[0], PATIENCE)
        kills = ("1:step:0", "0:forward:1", "2:substep:2", "1:updated:3", "0:prediction:4", "2:log:6", "0:save:8", "1:epoch:12",
                 "0:end:12")
        disturbed = self.start_form("disturbed", *self.EACH_EPOCH, *(f"kill={kill}" for kill in kills))
        self.check_same(undisturbed, disturbed, len(kills))
        # Each of the two that weren't killed goes on in its process.
        self.assertEqual(2 * len(kills), len(disturbed[2].find("worker_kept")))
        self.check_marks(undisturbed[1])
        self.check_said_seconds(disturbed[0], [[one[2] for one in line["recoveries"]] for line in disturbed[1].find("end")])
        ours, theirs = self.checkpoints("disturbed"), self.checkpoints("undisturbed")
        self.assertEqual(sorted(theirs), sorted(ours))
        self.assertEqual([], [name for name in ours if ours[name] != theirs[name]])
        # The Trainer goes on from a checkpoint as ever.
        for name in ("disturbed", "undisturbed"):
            os.rename(self.bed.path(f"{name}.journal.saved"), self.bed.path(f"{name} goes on.journal.saved"))
        ends = [self.ends(*self.start_form(f"{name} goes on", *self.EACH_EPOCH[1:], "num_train_epochs=4", "resume")[:2])
                for name in ("undisturbed", "disturbed")]
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(16, ends[0][0]["step"])

    def test_kills_now_and_then_with_buffers_noise_and_bf16(self):
        forms = ("cnn", "bf16=true", "max_steps=30", "eval_strategy=steps", "eval_steps=5", "save_strategy=steps", "save_steps=5",
                 "save_total_limit=1", "eval_on_start=true", "lr_scheduler_type=reduce_lr_on_plateau", "logging_steps=2",
                 "metric_for_best_model=eval_loss")
        undisturbed = self.start_form("undisturbed", *forms)
        self.assert_status(0, undisturbed[0], PATIENCE)
        # In the second step buckets are new.
        disturbed = self.start_form("disturbed", *forms, "fetched", "kill=1:prediction:0", "kill=2:forward:1")
        self.kill_now_and_then(disturbed, (8, 15, 22))
        self.check_same(undisturbed, disturbed, 5)

    def test_early_stopping_groups_by_length_and_processes_of_the_loader(self):
        forms = ("dataloader_num_workers=1", "dataloader_persistent_workers=true", "train_sampling_strategy=group_by_length",
                 "stop", "include_num_input_tokens_seen=all", "max_grad_norm=0", "eval_strategy=steps", "eval_steps=4",
                 "save_strategy=best", "load_best_model_at_end=true", "metric_for_best_model=eval_loss", "num_train_epochs=3",
                 "logging_steps=1")
        undisturbed = self.start_form("undisturbed", *forms)
        self.assert_status(0, undisturbed[0], PATIENCE)
        kills = ("0:forward:1", "1:evaluated:4", "0:save:4", "2:stepped:6")
        self.check_same(undisturbed, self.start_form("disturbed", *forms, *(f"kill={kill}" for kill in kills)), len(kills))

    def test_twin_without_attach_all_are_started_anew(self):
        job = self.start_form("plain", *self.EACH_EPOCH, "plain", "kill=1:forward:3", options=["--max_restarts", 1])
        self.ends(*job[:2])
        self.assertEqual(6, len(job[2].find("worker_started")))
        self.assertGreater(max(map(len, self.done(job[1]).values())), 1, "steps that were done again")

    def test_the_job_grows_and_shrinks(self):
        """All begin anew, and no restart is charged, as without attach()."""
        meet = ["--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--local_addr",
                "127.0.0.1", "--rdzv_conf"]
        first = self.start_form("first", "max_steps=60", workers=2, options=[*meet, "is_host=1,last_call_timeout=0.01"])
        self.wait_for_step(first[1], first[2], first[0], 3)
        second = self.start_form("second", "max_steps=60", workers=1, options=[*meet, "is_host=0"])
        self.bed.wait(lambda: second[1].find("step"), "steps of three workers", PATIENCE, [first[0], second[0]])
        second[0].signal(signal.SIGKILL)
        self.assertEqual({0, 1}, set(self.ends(*first[:2])))
        self.assertNotIn("restart 1", first[0].text())

    def test_what_it_can_not_keep_is_named(self):
        agent, journal, _ = self.start_form("refusals", "refusals", workers=2)
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        refused = {line["what"]: line["why"] for line in journal.find("refused", rank=0)}
        self.assertEqual({"stream", "auto_find_batch_size", "compile", "dispatch"}, set(refused))
        self.assertIn("elastic.attach() can't keep an IterableDataset", refused["stream"])

    def test_alone_and_under_torchrun_it_is_as_without(self):
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        results = {}
        for name, words, form in (("alone", [], "attached"), ("plain", [], "plain"), ("torchrun", torchrun, "attached")):
            journal = self.bed.follower.follow(self.bed.path(name))
            job = self.bed.start_process(
                name, [self.python, *words, self.program, journal.path, form, "max_steps=4"], output=self.bed.path(f"{name}.out"),
                env={**self.bed.environment, "OMP_NUM_THREADS": "1"})
            results[name] = self.ends(job, journal)
        self.assertEqual(results["plain"], results["alone"])
        self.assertEqual([4, 4], [end["step"] for end in results["torchrun"].values()])


class Accelerate(FrameworkCase):
    script, python, modules = "elastic_accelerate.py", LAUNCHERS, "accelerate"

    def test_kills_within_accumulations_and_now_and_then(self):
        undisturbed = self.start_form("undisturbed", 8)
        self.assert_status(0, undisturbed[0], PATIENCE)
        # An epoch has 5 steps; its last one is broken in each of its two batches.
        disturbed = self.start_form("disturbed", 8, "kill=1:2:1", "kill=0:4:1", "kill=2:9:0")
        self.kill_now_and_then(disturbed, (13, 20, 26, 33))
        self.check_same(undisturbed, disturbed, 7)

    def test_a_loader_with_another_sampler_is_named(self):
        agent, _, _ = self.start_form("foreign", 1, "foreign", workers=2)
        self.assert_status(1, agent, PATIENCE)
        self.assertIn("only if its batch_sampler is the Session's sampler", agent.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
