#!/usr/bin/env python3
"""--in_process_restart: scripts of Hugging Face's Trainer that know nothing of ddprun train through failures (docs/ELASTIC.md).
What can't be kept is named, and trains as ever.
"""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import FRAMEWORKS, ROOT  # noqa: E402
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
        self.assertIn(f"{OPTION}: no train() of transformers' Trainer; a loop of the script's own takes an elastic.Session",
                      agent.text())
        self.assertEqual([], events.find("worker_kept"))
        self.assertEqual(6, len(events.find("worker_started")))

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
        forms = ("plain", "num_train_epochs=2", "eval_strategy=epoch", "save_strategy=epoch")
        agent, journal, _ = self.start_script("undisturbed", self.script, *forms)
        expected = self.ends(agent, journal)
        self.assertEqual({1}, {end["trains"] for end in expected.values()})
        kills = ("kill=1:forward:3", "kill=0:prediction:8", "kill=2:updated:11")
        other, others, events = self.start_script("disturbed", self.script, *forms, *kills)
        self.assertEqual(expected, self.ends(other, others))
        self.assertIn("found Counting.train() of transformers", agent.text())
        self.assertEqual(6, len(events.find("worker_started")))
        self.assertEqual(6, len(events.find("worker_kept")))

    def test_twin_without_the_option_all_are_restarted(self):
        agent, journal, events = self.start_script("twin", self.script, "plain", "max_steps=6", "kill=1:forward:3",
                                                   options=("--max_restarts", 1))
        self.ends(agent, journal)
        self.assertNotIn(OPTION, agent.text())
        self.assertEqual([], events.find("worker_kept"))

    def test_an_iterable_data_set_is_refused(self):
        agent, journal, events = self.start_script("stream", self.script, "plain", "stream", "max_steps=6", "kill=1:forward:3",
                                                   options=(OPTION, "--max_restarts", 1))
        self.ends(agent, journal)
        self.assertIn("can't keep an IterableDataset", agent.text())
        self.assertEqual([], events.find("worker_kept"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
