#!/usr/bin/env python3
"""Loops over models of fully_shard() that train through failures (docs/ELASTIC.md): workers that weren't killed keep their
processes, all go back to a checkpoint in memory, and each rank ends with the bits of an undisturbed run.
"""

import collections
import os
import random
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import ROOT, WHOLE_ONLY, free_port, main_with_torch, remembered  # noqa: E402
from elastic_test import AHEAD, PATIENCE, STEPS, ElasticCase  # noqa: E402
from seeds import drawn_seed  # noqa: E402

TRAINING = os.path.join(ROOT, "tests", "support", "elastic_fsdp.py")
EVERY = 5


class ShardsCase(ElasticCase):
    def start(self, *forms, workers=3, steps=STEPS, every=EVERY, options=(), name="job", ends=(), env=None):
        """ends: (generation, rank, step, where) at which a worker ends."""
        journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", workers, *AHEAD, "--event_log", events.path, *options, TRAINING,
                                    journal.path, steps, every, *forms], env={**self.environment(ends), **(env or {})})
        return agent, journal, events

    @staticmethod
    def environment(ends):
        return {"OMP_NUM_THREADS": "1", "FSDP_ENDS": ",".join(":".join(map(str, one)) for one in ends)}

    def end(self, agent, journal, status=0):
        """What each rank had at the end."""
        self.assert_status(status, agent, PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: line["digest"] for line in journal.find("end")}

    @remembered
    def undisturbed(self, *forms, **options):
        agent, journal, _ = self.start(*forms, name="undisturbed", **options)
        return self.end(agent, journal), self.steps_of(journal)

    def check_steps(self, journal, undisturbed):
        for place, lines in self.steps_of(journal).items():
            self.assertEqual({undisturbed[place][0]}, set(lines), f"step and rank {place}")

    def check_back(self, journal, every=EVERY):
        """How far each recovery has gone back."""
        done = collections.defaultdict(list)
        for line in journal.find("step"):
            done[line["generation"]].append(line["step"])
        for generation in sorted(done)[1:]:
            before, first = max(done[generation - 1], default=0), min(done[generation])
            self.assertEqual(0, (first - 1) % every, f"generation {generation}")
            self.assertLessEqual(before - first, every, f"generation {generation}")

    def check_kept(self, events, kills, workers=3):
        self.assertEqual(workers + kills, len(events.find("worker_started")))
        self.assertEqual((workers - 1) * kills, len(events.find("worker_kept")))


class Kills(ShardsCase):
    def check(self, *forms, ends, workers=3, every=EVERY, steps=STEPS):
        digests, steps_of = self.undisturbed(*forms, workers=workers, steps=steps)
        agent, journal, events = self.start(*forms, ends=ends, workers=workers, every=every, steps=steps,
                                            options=["--max_restarts", len(ends)])
        self.assertEqual(digests, self.end(agent, journal))
        self.check_steps(journal, steps_of)
        self.check_kept(events, len(ends), workers)
        return journal

    def test_in_each_part_of_a_step(self):
        """And before the first checkpoint after a step."""
        journal = self.check(ends=[(1, 1, 3, "backward"), (2, 0, 8, "forward"), (3, 2, 26, "before"), (4, 1, 41, "backward"),
                                   (5, 0, 50, "after")])
        self.check_back(journal)

    @WHOLE_ONLY
    def test_a_checkpoint_in_each_step(self):
        """At most the step under way and the one before it are done again, because a rank is lost within its save."""
        journal = self.check(ends=[(1, 1, 8, "forward"), (2, 0, 26, "backward"), (3, 2, 44, "after")], every=1)
        self.check_back(journal, every=1)

    @WHOLE_ONLY
    def test_clipping_and_several_batches_a_step(self):
        self.check("clip", "accumulate", "average", ends=[(1, 1, 7, "backward"), (2, 0, 12, "forward")], steps=30)

    @WHOLE_ONLY
    def test_processes_of_the_data_loader(self):
        self.check("workers", "compiled", ends=[(1, 2, 12, "forward"), (2, 1, 43, "backward")])

    @WHOLE_ONLY
    def test_copies_of_shards_in_mixed_precision(self):
        self.check("halves", "bf16", ends=[(1, 2, 12, "forward"), (2, 1, 43, "backward")], workers=4)

    def test_a_pass_between_epochs(self):
        """The last one comes after the last step."""
        journal = self.check("evaluate", ends=[(1, 1, 41, "evaluate"), (2, 0, 81, "evaluate")], steps=80)
        found = {(line["step"], line["rank"], line["value"]) for line in journal.find("evaluation")}
        self.assertEqual(6, len(found), found)

    @WHOLE_ONLY
    def test_at_random_moments(self):
        rng = random.Random(drawn_seed())
        digests, steps = self.undisturbed()
        agent, journal, events = self.start(options=["--max_restarts", 100])
        for number in range(5):
            self.wait_for_step(journal, events, agent, number * 10 + rng.randrange(8))
            self.kill(events, rng.randrange(3))
        self.assertEqual(digests, self.end(agent, journal))
        self.check_steps(journal, steps)
        self.assertEqual(3 + 5, len(events.find("worker_started")))

    @WHOLE_ONLY
    def test_torchs_own_group_has_the_same_bits(self):
        self.assertEqual(self.undisturbed("still")[0], self.undisturbed("still", "lonely")[0])

    def test_twin_without_cleaning(self):
        """What a broken pass has left ends the survivors."""
        agent, journal, events = self.start("idle", ends=[(1, 1, 8, "backward")])
        self.end(agent, journal, status=1)
        self.assertEqual(2, len(events.find("worker_kept")))


class Recoveries(ShardsCase):
    def test_all_at_once(self):
        digests, steps = self.undisturbed()
        agent, journal, events = self.start(options=["--max_restarts", 3])
        self.wait_for_step(journal, events, agent, 22)
        for rank in range(3):
            self.kill(events, rank)
        self.assertEqual(digests, self.end(agent, journal))
        self.check_steps(journal, steps)
        begun = {line["step"] for line in journal.find("ready", generation=2)}
        self.assertEqual(1, len(begun))
        self.assertGreaterEqual(begun.pop(), 15)

    def test_a_fault_within_a_recovery(self):
        digests, _ = self.undisturbed()
        agent, journal, events = self.start(options=["--max_restarts", 9])
        self.wait_for_step(journal, events, agent, 12)
        first = self.living(events)
        self.kill(events, 1)
        self.wait(lambda: len(events.find("worker_started")) == 4, "the newcomer's start", agent)
        self.kill(events, 1)
        self.wait(lambda: len(events.find("worker_started")) == 5, "the next one's", agent)
        self.kill(events, 0)
        self.assertEqual(digests, self.end(agent, journal))
        self.assertEqual(first[2], self.living(events)[2])


class Refusals(ShardsCase):
    def test_without_session_step(self):
        agent, journal, _ = self.start("bare")
        self.end(agent, journal, status=1)
        self.assertIn("a model of fully_shard() takes `with session.step():` around the body of the loop", agent.text())

    def check_restart(self, said, *forms, options=()):
        """All processes are restarted after a failure, and a line has said why."""
        agent, journal, events = self.start("still", *forms, ends=[(1, 1, 12, "backward"), (2, 1, 12, "backward")],
                                            options=["--max_restarts", 2, *options])
        self.assertEqual(self.undisturbed("still")[0], self.end(agent, journal))
        self.assertEqual([], events.find("worker_kept"))
        self.assertEqual(3, len(re.findall(r"ddprun\.elastic: " + said + ": a failure restarts all processes", agent.text())))

    def test_a_version_of_torch_that_lacks_something(self):
        self.check_restart(r"torch \S+ lacks FSDPParamGroup\._no_such_name", "lacking")

    def test_without_memory(self):
        self.check_restart("not all ranks have checkpoints in memory, from which all could go on",
                           options=["--memory_checkpoints", "64KiB"])


class Nodes(ShardsCase):
    """Two nodes of two workers on one machine's loopback; node 0 has the service."""

    def start_node(self, number, nodes, *forms, ends=(), restarts=5):
        meet = ["--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint, "--local_addr", "127.0.0.1",
                "--rdzv_conf", f"is_host={int(number == 0)},last_call_timeout=0.01"]
        return self.bed.run(f"node{number}", ["--nnodes", nodes, "--nproc_per_node", 2, *AHEAD, "--max_restarts", restarts, *meet,
                                              "--event_log", self.events[number].path, TRAINING, self.journal.path, STEPS, EVERY,
                                              *forms], env=self.environment(ends))

    def follow(self):
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.journal = self.bed.follower.follow(self.bed.path("steps"))
        self.events = [self.bed.follower.follow(self.bed.path(f"events{number}")) for number in range(3)]

    def test_a_node_is_lost(self):
        """A new one takes its place, and its ranks have their parts from copies."""
        digests, steps = self.undisturbed(workers=4)
        self.follow()
        nodes = [self.start_node(number, "2") for number in range(2)]
        self.wait(lambda: len(self.journal.find("step", step=22)) == 4, "steps", nodes[0])
        first = self.living(self.events[0])
        nodes[1].signal(signal.SIGKILL)
        nodes[1].wait(PATIENCE)
        nodes[1] = self.start_node(2, "2")
        self.assertEqual(digests, self.end(nodes[0], self.journal))
        self.assert_status(0, nodes[1], PATIENCE)
        self.assertEqual(first, self.living(self.events[0]), "the first node's processes")
        self.check_steps(self.journal, steps)
        begun = {line["step"] for line in self.journal.find("ready", generation=2)}
        self.assertTrue(begun and begun <= {15, 20}, begun)

    def test_the_job_grows_and_shrinks(self):
        """All are restarted, without a charge, and each rank's new part is of the newest step that all had."""
        self.follow()
        first = self.start_node(0, "1:2", "average", "parts", restarts=0)
        self.wait(lambda: 8 in self.steps(1), "steps of two", first)
        second = self.start_node(1, "1:2", "average", "parts", restarts=0)
        self.wait(lambda: len(self.journal.find("step", step=32, world=4)) == 4, "steps of four", first)
        second.signal(signal.SIGKILL)
        self.end(first, self.journal)
        worlds = self.worlds()
        self.assertEqual([2, 4, 2], [world for _, world in worlds], worlds)
        for (generation, former), (following, world) in zip(worlds, worlds[1:]):
            step = min(line["step"] for line in self.journal.find("ready", generation=following))
            self.assertLessEqual(max(self.steps(generation)) - step, 2 * EVERY, f"generation {following}")
            before, after = self.whole(generation, step, former), self.whole(following, step, world)
            self.assertEqual(before, after, f"generation {following}")
            self.assertGreater(len(after), 30)
            self.assertIn(f"the state of step {step}, which {former} workers have saved in memory, is divided among {world}",
                          first.text())

    def worlds(self):
        """(generation, number of workers) of those that have trained."""
        return sorted({(line["generation"], line["world"]) for line in self.journal.find("step")})

    def steps(self, generation):
        return {line["step"] for line in self.journal.find("step", generation=generation)}

    def whole(self, generation, step, world):
        """The tensors that ranks have in parts, each part after the other."""
        lines = sorted(self.journal.find("parts", generation=generation, step=step, world=world), key=lambda line: line["rank"])
        self.assertEqual(world, len(lines), f"generation {generation}")
        return {name: "".join(line["parts"][name] for line in lines) for name in lines[0]["parts"]}


if __name__ == "__main__":
    main_with_torch()
