#!/usr/bin/env python3
"""Ways to use DistributedDataParallel in a loop that trains through failures (docs/ELASTIC.md): each ends with the bits of an
undisturbed run after kills, or is refused by name.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import ROOT, WHOLE_ONLY, main_with_torch  # noqa: E402
from elastic_test import PATIENCE, ElasticCase, KillsCase  # noqa: E402

WAYS = os.path.join(ROOT, "tests", "support", "elastic_ways.py")


class Ways(KillsCase):
    PROGRAM = WAYS

    def check(self, *forms, kills=2, count=40, **options):
        return super().check(*forms, kills=kills, count=count, **options)

    @WHOLE_ONLY
    def test_views_of_buckets_and_a_communication_hook(self):
        self.check("views", "hook")

    def test_a_static_graph(self):
        self.check("static")

    @WHOLE_ONLY
    def test_unused_parameters_and_collectives_in_passes(self):
        """If a collective breaks after the update, the step that is done again reports the loss after the update."""
        self.check("with", "unused", "synced", losses=False)

    @WHOLE_ONLY
    def test_sends_and_receives(self):
        self.check("with", "neighbours", losses=False)

    @WHOLE_ONLY
    def test_uneven_inputs(self):
        self.check("join", "narrow")

    def test_buffers_that_passes_make_and_replace(self):
        self.check("replaced", "lazy", kills=4)

    def test_a_momentum_encoder(self):
        self.check("momentum", kills=3)

    def test_a_pass_that_ends_after_the_other_models_update(self):
        """If the first model was updated already, the step that is done again reports the loss after the update."""
        self.check("gan", "entangled", losses=False)

    def test_such_a_pass_with_buffers_that_its_end_needs(self):
        self.check("gan", "entangled", "scaled", kills=4, losses=False)

    def test_a_compiled_module(self):
        self.check("inner")


class Counts(ElasticCase):
    PROGRAM = WAYS

    def test_a_rate_of_a_loops_own_count_is_named(self):
        agent, journal, events = self.start("rate")
        self.wait_for_step(journal, events, agent, 12)
        self.kill(events, 1)
        said = "the lr of AdamW's group 0 is "
        self.wait(lambda: said in agent.text(), "the line about rates", agent)


class Refusals(ElasticCase):
    PROGRAM = WAYS

    def check(self, said, *forms):
        agent, _, _ = self.start(*forms, steps=3, workers=2)
        self.assert_status(1, agent, PATIENCE)
        self.assertIn(said, agent.text())

    def test_a_compiled_distributed_data_parallel(self):
        self.check("DistributedDataParallel wraps (torch.compile goes inside of it), or fully_shard(), not OptimizedModule",
                   "outer")

    def test_a_hook_with_a_state(self):
        self.check("can't give a new worker the state of the communication hook powerSGD_hook", "stateful")

    def test_batch_norm_over_ranks_without_session_step(self):
        self.check("SyncBatchNorm takes `with session.step():` around the body of the loop", "batchnorm")

    def test_an_optimizer_that_the_loop_makes(self):
        self.check("elastic.Session isn't given the SGD that this loop steps with", "renewed")

    def test_a_peer_that_stalls_longer_than_the_groups_time(self):
        """The other waits in its backward pass, in C++."""
        self.check("rank 0 timed out waiting 2s for a collective", "stalls")

    def test_a_second_session(self):
        self.check("a process has one elastic.Session", "again")


class Evaluations(ElasticCase):
    PROGRAM = WAYS

    def test_a_worker_is_lost_after_an_epochs_last_step(self):
        """The others wait for it at the epoch's end. All come to the end, and to the evaluation after it."""
        digest, _ = self.undisturbed("epochs", "evaluate", steps=80)
        agent, journal, events = self.start("epochs", "evaluate", "last", steps=80)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual((4, 2), (len(events.find("worker_started")), len(events.find("worker_kept"))))
        self.assertEqual([0, 1, 2], sorted(line["rank"] for line in journal.find("evaluation", step=40)))

    def test_a_worker_is_lost_between_two_epochs(self):
        """The others leave the evaluation out, and go on in their processes."""
        digest, _ = self.undisturbed("epochs", "evaluate", "guarded", steps=80)
        agent, journal, events = self.start("epochs", "evaluate", "guarded", "between", steps=80)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual((4, 2), (len(events.find("worker_started")), len(events.find("worker_kept"))))

    def test_twin_without_session_step_all_are_restarted(self):
        digest, _ = self.undisturbed("epochs", "evaluate", "memory", steps=80)
        agent, journal, events = self.start("epochs", "evaluate", "memory", "between", steps=80, options=["--max_restarts", 9])
        self.assertEqual(digest, self.end(agent, journal))
        self.assertLess(4, len(events.find("worker_started")))


class AfterTheLoop(ElasticCase):
    PROGRAM = WAYS

    def test_a_worker_is_lost_after_the_last_step(self):
        """The others' evaluation ends with an error. All are restarted, and go on from the newest checkpoint in memory."""
        digest, _ = self.undisturbed("memory", "evaluate", "epochs", steps=40)
        agent, journal, _ = self.start("memory", "evaluate", "epochs", "late", steps=40, options=["--max_restarts", 9])
        self.assertEqual(digest, self.end(agent, journal))
        begun = {line["step"] for line in journal.find("ready") if line["generation"] > 1}
        self.assertTrue(begun <= {35, 39}, begun)  # 39: the end of step 40 comes again
        self.assertEqual(3, len({line["rank"] for line in journal.find("evaluation", step=40)}))


class Heirs(ElasticCase):
    PROGRAM = WAYS

    def test_all_with_the_state_are_lost_while_a_new_worker_waits_for_them(self):
        """All go on from the newest checkpoint in memory."""
        digest, _ = self.undisturbed("memory", steps=30)
        agent, journal, _ = self.start("memory", "heirs", "unreachable", steps=30, options=["--max_restarts", 9])
        self.assertEqual(digest, self.end(agent, journal))
        begun = {line["step"] for line in journal.find("ready") if line["generation"] > 1}
        self.assertTrue(begun and begun <= {5, 10}, begun)


if __name__ == "__main__":
    main_with_torch()
