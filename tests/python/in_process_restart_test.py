#!/usr/bin/env python3
"""--in_process_restart: scripts of Hugging Face's Trainer and of Lightning's that know nothing of ddprun train through failures
(docs/ELASTIC.md). What can't be kept is named, and trains as ever.
"""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import FRAMEWORKS, LAUNCHERS, ROOT, WHOLE_ONLY  # noqa: E402
from elastic_lightning_test import LightningCase, has_package  # noqa: E402
from elastic_test import AHEAD, PATIENCE, TRAINING, ElasticCase  # noqa: E402

OPTION = "--in_process_restart"
ONE_SUM = '''
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print("sum", int(one), dist.get_backend())
dist.destroy_process_group()
'''
ACCELERATE = '''
import torch
import torch.distributed as dist
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
print("trained", dist.get_backend())
'''


class Case(ElasticCase):
    def start_script(self, name, script, *arguments, options=(OPTION,), workers=3, path=True):
        journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", workers, *AHEAD, "--event_log", events.path, *options, script,
                                    journal.path, *arguments],
                             env={"OMP_NUM_THREADS": "1", **({"PYTHONPATH": os.path.join(ROOT, "python")} if path else {})})
        return agent, journal, events

    def ends(self, agent, journal):
        """{rank: what it had at the end}"""
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: {key: value for key, value in line.items() if key not in ("t", "pid", "generation")}
                for line in journal.find("end")}


class OtherScripts(Case):
    def test_a_loop_of_its_own_is_restarted(self):
        agent, journal, events = self.start_script("own", TRAINING, 60, "lonely", options=(OPTION, "--max_restarts", 1))
        self.wait_for_step(journal, events, agent, 10)
        self.kill(events, 1)
        self.assertEqual(3, len(self.ends(agent, journal)))
        self.assertIn(f"{OPTION}: no train() of transformers' Trainer, and no fit() of Lightning's; a loop of the script's own",
                      agent.text())
        self.assertEqual([], events.find("worker_kept"))
        self.assertEqual(6, len(events.find("worker_started")))

    def test_a_loop_of_accelerates_trains_as_ever(self):
        python = os.environ.get("DDPRUN_TEST_PYTHON", LAUNCHERS)
        if not has_package(python, "accelerate"):
            self.skipTest(f"no accelerate in {python}: run scripts/setup")
        self.bed.environment["PYTHON_EXEC"] = python
        agent, _, _ = self.start_script("accelerate", self.bed.write("loop.py", ACCELERATE))
        self.assert_status(0, agent, PATIENCE)
        self.assertEqual(3, agent.text().count("trained gloo"), agent.text())
        self.assertIn(f"{OPTION}: found Accelerator.prepare(), but a new worker can't be given what a loop", agent.text())

    @WHOLE_ONLY
    def test_a_script_without_a_model(self):
        agent, _, _ = self.start_script("sum", self.bed.write("sum.py", ONE_SUM))
        self.assert_status(0, agent, PATIENCE)
        self.assertEqual(3, agent.text().count("sum 3 gloo"), agent.text())

    def test_a_script_without_ddpruns_module(self):
        agent, _, _ = self.start_script("bare", self.bed.write("sum.py", ONE_SUM), path=False)
        self.assert_status(0, agent, PATIENCE)
        self.assertIn("ddprun's module can't be imported", agent.text())
        self.assertEqual(3, agent.text().count("sum 3 gloo"), agent.text())


class Trainer(Case):
    """Hugging Face's."""

    script = os.path.join(ROOT, "tests", "support", "elastic_trainer.py")

    def setUp(self):
        super().setUp()
        python = os.environ.get("DDPRUN_TEST_PYTHON", FRAMEWORKS)
        if not os.access(python, os.X_OK):
            self.skipTest(f"no {python}: run scripts/test --only frameworks")
        self.bed.environment["PYTHON_EXEC"] = python

    def test_its_train_is_found(self):
        forms = ("plain", "num_train_epochs=2", "eval_strategy=epoch", "save_strategy=epoch", "agreed", "own")
        agent, journal, _ = self.start_script("undisturbed", self.script, *forms)
        expected = self.ends(agent, journal)
        self.assertEqual({(1, 6, True)}, {(end["trains"], end["agreed"], end["is_own"]) for end in expected.values()})
        kills = ("kill=1:forward:3", "kill=0:prediction:8", "kill=2:updated:11")
        other, others, events = self.start_script("disturbed", self.script, *forms, *kills)
        self.assertEqual(expected, self.ends(other, others))
        self.assertIn("found Counting.train() of transformers", agent.text())
        self.assertEqual(6, len(events.find("worker_started")))
        self.assertEqual(6, len(events.find("worker_kept")))

    @WHOLE_ONLY
    def test_twin_without_the_option_all_are_restarted(self):
        agent, journal, events = self.start_script("twin", self.script, "plain", "max_steps=6", "kill=1:forward:3",
                                                   options=("--max_restarts", 1))
        self.ends(agent, journal)
        self.assertNotIn(OPTION, agent.text())
        self.assertEqual([], events.find("worker_kept"))

    def test_a_loss_after_train(self):
        """All are restarted, once, as without the option."""
        agent, journal, events = self.start_script("later", self.script, "plain", "later", "max_steps=6", "kill=1:prediction:6",
                                                   options=(OPTION, "--max_restarts", 1))
        self.assertEqual({6}, {end["step"] for end in self.ends(agent, journal).values()})
        self.assertEqual([], events.find("worker_kept"))

    @WHOLE_ONLY
    def test_an_iterable_data_set_is_refused(self):
        agent, journal, events = self.start_script("stream", self.script, "plain", "stream", "max_steps=6", "kill=1:forward:3",
                                                   options=(OPTION, "--max_restarts", 1))
        self.ends(agent, journal)
        self.assertIn("can't keep an IterableDataset", agent.text())
        self.assertEqual([], events.find("worker_kept"))

    def test_what_a_new_worker_would_not_have(self):
        """The model counts its passes."""
        forms = ("plain", "cnn", "counts", "max_steps=6", "kill=1:forward:3")
        agent, journal, events = self.start_script("counts", self.script, *forms,
                                                   options=(OPTION, "--max_restarts", 1))
        self.assertEqual({6}, {end["step"] for end in self.ends(agent, journal).values()})
        said = "a new worker can't be given passes of the model: all processes are restarted\n"
        self.assertEqual(1, agent.text().count(said), agent.text())
        self.assertEqual([], events.find("worker_kept"))

    def test_a_model_that_is_not_wrapped_trains_as_ever(self):
        self.check_refused("bare", f"{OPTION}: can't keep this Trainer (")

    def check_refused(self, form, said):
        """Nothing fails, and when a worker is lost, all are restarted."""
        agent, journal, events = self.start_script(form, self.script, "plain", form, "max_steps=6", "kill=1:forward:3",
                                                   options=(OPTION, "--max_restarts", 1))
        self.assertEqual({6}, {end["step"] for end in self.ends(agent, journal).values()})
        self.assertIn(said, agent.text())
        self.assertEqual([], events.find("worker_kept"))


class Lightning(LightningCase):
    """Scripts with strategy="ddp"."""

    def begin_plain(self, *forms, name="job", kills="", options=(OPTION,)):
        self.bed.environment["PYTHONPATH"] = os.path.join(ROOT, "python")
        return self.begin("plain", *forms, name=name, kills=kills, options=options)

    def test_its_fit_is_found(self):
        """Lightning changes the data module after the first epoch; a new worker has no sanity check, which makes what is lazy."""
        undisturbed = self.facts(self.begin_plain("module", "lazy", name="undisturbed"))
        kills = "1:1:pass:7 2:0:validation:15 3:2:saving:30 4:0:epoch:30"
        job = self.begin_plain("module", "lazy", kills=kills.replace(" ", ","))
        self.assertEqual(undisturbed, self.facts(job))
        self.assertIn(f"{OPTION}: found fit() of Lightning's Trainer", job[0].text())
        self.assertEqual(7, len(job[2].find("worker_started")))
        self.assertEqual(8, len(job[2].find("worker_kept")))

    @WHOLE_ONLY
    def test_nothing_is_different_without_a_kill(self):
        """The order of samples, the numbers, what is logged."""
        ours = self.facts(self.begin_plain("calm", "again"))
        theirs = self.facts(self.begin_plain("calm", "again", name="theirs", options=()))
        self.assertEqual(theirs, ours)

    @WHOLE_ONLY
    def test_twin_without_the_option_all_are_restarted(self):
        job = self.begin_plain("calm", kills="1:1:pass:7", options=("--max_restarts", 1))
        self.facts(job)
        self.assertEqual([], job[2].find("worker_kept"))

    def test_what_a_new_worker_would_not_have(self):
        """The module keeps its steps' outputs."""
        expected = self.facts(self.begin_plain("calm", "outputs", name="undisturbed"))
        for rank in (0, 1):
            with self.subTest(rank):
                job = self.begin_plain("calm", "outputs", name=f"job{rank}", kills=f"1:{rank}:pass:20",
                                       options=(OPTION, "--max_restarts", 1))
                self.assertEqual(expected["end"], self.facts(job)["end"])
                said = "a new worker can't be given outputs of the LightningModule: all processes are restarted\n"
                self.assertEqual(1, job[0].text().count(said), job[0].text())
                self.assertEqual([], job[2].find("worker_kept"))
                self.assertEqual([], job[2].find("let_go_late"))  # Lightning's handler of SIGTERM waits for all

    def test_weights_that_a_hook_averages_after_the_update(self):
        """A new worker would do again what has followed the newest update. In a step it begins after that."""
        expected = self.facts(self.begin_plain("calm", "average", name="undisturbed"))
        job = self.begin_plain("calm", "average", name="kept", kills="1:1:pass:20")
        self.assertEqual(expected, self.facts(job))
        self.assertEqual(2, len(job[2].find("worker_kept")))
        job = self.begin_plain("calm", "average", kills="1:1:validation:15", options=(OPTION, "--max_restarts", 1))
        self.assertEqual(expected["end"], self.facts(job)["end"])
        said = "parameters or buffers were changed after the update, and a new worker would change them again"
        self.assertIn(said, job[0].text())
        self.assertEqual([], job[2].find("worker_kept"))

    @WHOLE_ONLY
    def test_a_loss_after_the_fit(self):
        """All are restarted, once, as without the option."""
        ours, theirs = (self.begin_plain("calm", "again", name=name, kills="1:2:pass:50", options=(*options, "--max_restarts", 1))
                        for name, options in (("ours", [OPTION]), ("theirs", [])))
        self.assertEqual(self.facts(theirs), self.facts(ours))
        self.assertEqual([], ours[2].find("worker_kept"))

    def test_what_is_not_kept_trains_as_ever(self):
        for form, what in (("random", "the order of"), ("growing", "the metric all"), ("sum", "'late', which is logged in"),
                           ("iterable", "the Stream that Lightning's Trainer reads")):
            with self.subTest(form):
                job = self.begin_plain(form, "calm", name=form, kills="1:1:pass:7", options=(OPTION, "--max_restarts", 1))
                self.assert_status(0, job[0], PATIENCE)
                self.assertIn(f"{OPTION}: can't keep {what}", job[0].text())
                self.bed.follower.refresh()
                self.assertEqual(3, len(job[1].find("end")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
