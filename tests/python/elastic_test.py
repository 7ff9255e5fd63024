#!/usr/bin/env python3
"""Loops of Python's that train through failures (docs/ELASTIC.md): a run with kills ends bit by bit as an undisturbed one, no
step is lost, no sample is learned from twice, and workers that weren't killed keep their processes.
"""

import collections
import functools
import os
import random
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import ROOT, SLOW, TORCH_PYTHON, WHOLE, WHOLE_ONLY, BedTestCase, free_port, main_with_torch, remembered  # noqa: E402
from ddprun import progress  # noqa: E402
from seeds import drawn_seed  # noqa: E402

TRAINING = os.path.join(ROOT, "tests", "support", "elastic_python.py")
PARTS = [os.path.join(HERE, name) for name in ("elastic_parts.py", "groups_parts.py", "transfer_parts.py")]
PATIENCE = 60 * SLOW
STEPS = 60  # an epoch has 40
MANY, SETTLED = (1000 if WHOLE else 20), 10  # recoveries; from then on a process has all that it needs
# Workers are forks of an interpreter that has imported what a first optimizer imports.
AHEAD = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch._dynamo")


class ElasticCase(BedTestCase):
    PROGRAM = TRAINING

    def setUp(self):
        super().setUp()
        self.bed.environment["PYTHON_EXEC"] = os.environ.get("DDPRUN_TEST_PYTHON", TORCH_PYTHON)
        self.bed.forget_warm()

    def start(self, *forms, workers=3, steps=STEPS, options=(), name="job", env=None):
        journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", workers, *AHEAD, "--event_log", events.path, *options, self.PROGRAM,
                                    journal.path, steps, *forms], env={"OMP_NUM_THREADS": "1", **(env or {})})
        return agent, journal, events

    def wait(self, condition, what, agent):
        return self.bed.wait(condition, what, PATIENCE, alive=[agent])

    def end(self, agent, journal, status=0):
        """What the ranks had at the end, which is the same on all."""
        self.assert_status(status, agent, PATIENCE)
        self.bed.follower.refresh()
        ends = journal.find("end")
        self.assertEqual(1, len({line["digest"] for line in ends}), ends)
        return ends[0]["digest"]

    @remembered
    def undisturbed(self, *forms, **options):
        agent, journal, _ = self.start(*forms, name="undisturbed", **options)
        return self.end(agent, journal), self.steps_of(journal)

    @staticmethod
    def steps_of(journal):
        """{(step, rank): [(loss, samples)]}"""
        steps = collections.defaultdict(list)
        for line in journal.find("step"):
            steps[line["step"], line["rank"]].append((line["loss"], tuple(line["samples"])))
        return steps

    def living(self, events):
        """{local rank: pid} of the newest processes."""
        return {int(line["local_rank"]): int(line["worker_pid"]) for line in events.find("worker_started")}

    def kill(self, events, rank):
        pid = self.living(events)[rank]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_step(self, journal, events, agent, step):
        """All ranks' newest processes have done that step, or one after it."""
        def all_there():
            last = {line["pid"]: line["step"] for line in journal.find("step")}
            living = self.living(events).values()
            return living and all(last.get(pid, 0) >= step for pid in living)
        self.wait(all_there, f"step {step} of all", agent)

    def check_marks(self, journal):
        """What follows a step isn't timed as a phase. A new worker may arrive after a step, and has marked nothing."""
        self.assertEqual({progress.STEP}, {line["phase"] for line in journal.find("step") if line["phase"] != 0})

    def check_said_seconds(self, agent, recoveries):
        """The lines about recoveries have the longest of the ranks' times. recoveries: each rank's seconds, the newest last."""
        said = [float(found) for found in re.findall(r"training goes on after step \d+, ([0-9.]+) s after", agent.text())]
        for number in range(1, max(map(len, recoveries)) + 1):
            longest = max(one[-number] for one in recoveries if len(one) >= number)
            self.assertGreaterEqual(said[-number], round(longest, 1), f"recovery {number} from the last: {said} {recoveries}")


class KillsCase(ElasticCase):
    def check(self, *forms, kills=3, losses=True, count=STEPS, options=()):
        random_ = random.Random(drawn_seed())
        digest, steps = self.undisturbed(*forms, steps=count)
        agent, journal, events = self.start(*forms, steps=count, options=options)
        killed = set()
        for number in range(kills):
            self.wait_for_step(journal, events, agent, (number + 1) * count // (kills + 2) + random_.randrange(5))
            killed.add(self.kill(events, random_.randrange(3)))
        self.assertEqual(digest, self.end(agent, journal))
        self.assertNotIn("so their models differ", agent.text())
        for place, lines in self.steps_of(journal).items():
            for loss, samples in lines:
                self.assertEqual(steps[place][0], (loss if losses else steps[place][0][0], samples), f"step and rank {place}")
        # No worker was started for another reason than the end of its predecessor.
        self.assertEqual(3 + kills, len(events.find("worker_started")))
        self.assertEqual(2 * kills, len(events.find("worker_kept")))
        return journal


class Kills(KillsCase):
    """Each form of a loop, with a kill now and then."""

    def test_plain(self):
        """Such kills take no restart from those that are allowed."""
        journal = self.check(options=["--max_restarts", 1])
        self.check_marks(journal)
        twice = [place for place, lines in self.steps_of(journal).items() if len(lines) > 1]
        self.assertEqual([], twice, "steps that a rank has done twice")

    @WHOLE_ONLY
    def test_several_batches_a_step_in_uneven_shares(self):
        self.check("accumulate", "narrow")

    @WHOLE_ONLY
    def test_a_scaler_and_clipping(self):
        """The scaler's first steps overflow."""
        self.check("scaler")

    @WHOLE_ONLY
    def test_two_models_and_optimizers(self):
        """If the first model was updated already, the step that is done again reports that model's loss after the update."""
        self.check("gan", losses=False)

    def test_a_closure_and_processes_of_the_data_loader(self):
        self.check("closure", "workers")

    def test_collectives_of_its_own_in_steps_and_between_epochs(self):
        """If a collective breaks after the update, the step that is done again reports the loss after the update. An evaluation
        is outside of all steps here, after the 40th, so the kills come 8 steps before it and later."""
        self.check("with", "evaluate", "halves", losses=False, count=70)

    def test_what_set_ups_exchange_and_batches_that_are_taken_apart(self):
        journal = self.check("shared", "dict", "workers")
        shared = [line["shared"] for line in journal.find("ready")]
        self.assertEqual([shared[0]] * 6, shared)

    def test_three_updates_a_batch_and_a_checkpoint_of_its_own(self):
        """The script loads it in each process. A new worker's peers are further."""
        self.check("many", "loads", losses=False)

    def test_a_loss_between_the_updates_of_a_batch(self):
        """The new worker skips two updates, which its peers have done."""
        digest, _ = self.undisturbed("many", "loads")
        agent, journal, events = self.start("many", "loads", env={"ELASTIC_DIES_BETWEEN": "1:2:16"})
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual(3 + 1, len(events.find("worker_started")))


class Recoveries(ElasticCase):
    def test_a_fault_within_a_recovery(self):
        """The newcomer is killed while it sets itself up, and then a survivor."""
        digest, _ = self.undisturbed()
        agent, journal, events = self.start()
        self.wait_for_step(journal, events, agent, 10)
        first = self.living(events)
        self.kill(events, 1)
        self.wait(lambda: len(events.find("worker_started")) == 4, "the newcomer's start", agent)
        self.kill(events, 1)
        self.wait(lambda: len(events.find("worker_started")) == 5, "the next one's", agent)
        self.kill(events, 0)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual(first[2], self.living(events)[2])

    def test_a_loss_after_a_rest(self):
        """The agent has closed the survivors' connections, as it does in each job that trains for some minutes."""
        digest, _ = self.undisturbed()
        agent, journal, events = self.start("rests")
        self.wait(lambda: len(journal.find("rested")) == 3, "the agent closes connections", agent)
        self.wait_for_step(journal, events, agent, 10)
        first = self.living(events)
        self.kill(events, 1)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual([first[0], first[2]], [self.living(events)[0], self.living(events)[2]])

    def test_all_but_one_at_once(self):
        digest, _ = self.undisturbed()
        agent, journal, events = self.start()
        self.wait_for_step(journal, events, agent, 10)
        first = self.living(events)
        for rank in (0, 2):
            self.kill(events, rank)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual(first[1], self.living(events)[1])
        self.check_said_seconds(agent, [line["recoveries"] for line in journal.find("end")])

    def test_an_evaluation_that_a_loss_breaks(self):
        """The error names what the program can do."""
        advice = 'takes one of --max_restarts: put the collective into "with session.step():"'
        agent, _, _ = self.start("evaluate", env={"ELASTIC_DIES": "1:1:40"})
        self.assert_status(1, agent, PATIENCE)
        self.assertIn(advice, agent.text())
        agent, journal, _ = self.start("evaluate", "guarded", name="guarded", env={"ELASTIC_DIES": "1:1:40"})
        self.end(agent, journal)
        self.assertNotIn(advice, agent.text())

    def test_twin_without_memory_all_at_once_begin_anew(self):
        digest, _ = self.undisturbed()
        agent, journal, events = self.start("forgets", options=["--max_restarts", 2])
        self.wait_for_step(journal, events, agent, 10)
        for rank in range(3):
            self.kill(events, rank)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual({0}, {line["step"] for line in journal.find("ready", generation=2)})

    def check_all_at_once(self, *forms, kills, every=5):
        """Kills of all workers. Each time they go on from the newest checkpoint in memory."""
        random_ = random.Random(drawn_seed())
        digest, steps = self.undisturbed(*forms)
        agent, journal, events = self.start("memory", *forms, options=["--max_restarts", kills])
        for number in range(1, kills + 1):
            self.wait_for_step(journal, events, agent, number * 55 // kills - random_.randrange(5))
            for rank in range(3):
                self.kill(events, rank)
            self.wait(lambda number=number: len(journal.find("ready", generation=number + 1)) == 3, "all again", agent)
            done = max(line["step"] for line in journal.find("step", generation=number))
            begun = {line["step"] for line in journal.find("ready", generation=number + 1)}
            self.assertEqual(1, len(begun))
            # A save may be under way, and the step after it, too.
            self.assertLessEqual(done - begun.pop(), 2 * every)
        self.assertEqual(digest, self.end(agent, journal))
        for place, lines in self.steps_of(journal).items():
            self.assertEqual({steps[place][0]}, set(lines), f"step and rank {place}")
        self.assertEqual([], events.find("worker_kept"))

    def test_all_at_once_go_on_from_memory(self):
        self.check_all_at_once(kills=5)

    @WHOLE_ONLY
    def test_all_at_once_with_a_scaler(self):
        self.check_all_at_once("scaler", kills=2)

    def test_the_end_of_an_epoch_comes_again(self):
        """All are killed in the evaluation after the first epoch."""
        agent, journal, events = self.start("memory", "evaluate", options=["--max_restarts", 1], env={"ELASTIC_STOPS": "1:40"})
        self.wait(lambda: len(journal.find("stops")) == 3, "the evaluation", agent)
        for rank in range(3):
            self.kill(events, rank)
        self.end(agent, journal)
        # A loop that ends with step 40 goes through the epoch's end again, too.
        self.assertEqual({39}, {line["step"] for line in journal.find("ready", generation=2)})
        self.assertEqual(3, len(journal.find("evaluation", step=40, generation=2)))
        self.assertEqual([], journal.find("step", step=40, generation=2))

    def test_twin_with_torchs_own_group_all_are_started_anew(self):
        agent, journal, events = self.start("lonely", options=["--max_restarts", 1])
        self.wait_for_step(journal, events, agent, 10)
        self.kill(events, 1)
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        self.assertEqual([], events.find("worker_kept"))
        self.assertGreater(max(map(len, self.steps_of(journal).values())), 1)

    def test_an_error_of_the_programs_own(self):
        """Is its own, and restarts nobody else where a restart is left."""
        agent, journal, events = self.start(options=["--max_restarts", 1], env={"ELASTIC_RAISES": "1:1:20"})
        self.end(agent, journal)
        self.assertEqual(2, len(events.find("worker_kept")))
        self.assertIn("ValueError: step 20", agent.text())

    def test_a_new_worker_that_ends_before_it_has_joined(self):
        agent, journal, events = self.start("stillborn", options=["--max_restarts", 2])
        self.wait_for_step(journal, events, agent, 10)
        self.kill(events, 1)
        self.end(agent, journal)
        self.assertIn("exited with code 1, before it joined the others: all processes are restarted", agent.text())
        self.assertEqual((2, 7), (len(events.find("worker_kept")), len(events.find("worker_started"))))

    def test_an_error_in_a_process_that_takes_long_to_end(self):
        """The others wait so long for its end that they are suspect of hanging."""
        os.mkfifo(self.bed.path("lingers"))
        agent, journal, events = self.start(options=["--max_restarts", 1], env={"ELASTIC_RAISES": "1:1:20",
                                                                                "ELASTIC_LINGERS": self.bed.path("lingers")})
        self.wait(lambda: events.find("hang_suspect"), "a suspicion", agent)
        with open(self.bed.path("lingers"), "wb"):
            pass
        self.end(agent, journal)
        self.assertEqual(2, len(events.find("worker_kept")))

    def test_many_in_one_process(self):
        """Leave nothing behind in it."""
        agent, journal, events = self.start("counts", workers=2, steps=1000000)
        killed, read, counted, steps = 0, 0, [], collections.Counter()

        def has_trained():
            """A few steps, so that the job has made progress (R7)."""
            nonlocal read
            for line in journal.lines[read:]:
                steps[line["pid"]] += line["event"] == "step"
                if line["event"] == "resources" and line["rank"] == 0:
                    counted.append(line)
            read = len(journal.lines)
            pid = self.living(events).get(1)
            return pid != killed and steps[pid] > 2
        for _ in range(MANY):
            self.wait(has_trained, "steps of the new worker", agent)
            killed = self.kill(events, 1)
        self.wait(has_trained, "the last recovery", agent)
        first, last = counted[SETTLED - 1], counted[-1]
        print(f"{MANY} recoveries: {first} {last}", flush=True)
        self.assertEqual(first["pid"], last["pid"])
        for what in ("threads", "descriptors"):
            self.assertLessEqual(last[what], first[what], what)
        self.assertLess(last["memory_kb"], first["memory_kb"] + 5 * 1024)

    def test_the_job_ends_with_an_error_of_the_programs_own(self):
        """No restart is left; the other workers don't add errors of theirs."""
        agent, journal, _ = self.start(env={"ELASTIC_RAISES": "1:1:20"})
        self.assert_status(1, agent, PATIENCE)
        self.assertIn("error: the job failed: worker rank 1", agent.text())
        self.assertIn("ValueError: step 20", agent.text())
        self.assertNotIn("JobOver", agent.text())


class Handover(ElasticCase):
    """A new worker's state comes while it sets itself up."""

    def check(self, form, again=()):
        """again: local ranks that are started anew, beside rank 1."""
        digest, _ = self.undisturbed()
        agent, journal, events = self.start(form)
        self.wait_for_step(journal, events, agent, 10)
        if again:
            os.mkfifo(journal.path + ".gate")
        self.kill(events, 1)
        if again:
            self.wait_for_newcomer(events, agent)
            open(journal.path + ".gate", "wb").close()
        self.assertEqual(digest, self.end(agent, journal))
        started = collections.Counter(int(line["local_rank"]) for line in events.find("worker_started"))
        self.assertEqual(collections.Counter([0, 1, 1, 2, *again]), started)
        return journal

    def wait_for_newcomer(self, events, agent):
        """The agent knows that it goes on in its process."""
        self.wait(lambda: [line for line in events.find("worker_can_rejoin") if line["generation"] == 2], "a new worker", agent)

    def test_before_it_has_a_model(self):
        (early,) = self.check("early").find("early")
        self.assertGreaterEqual(early["position"][0], 10)

    def test_half_a_state_is_none(self):
        """Rank 2 gives the first half, and dies. The new worker goes on, and so does rank 0."""
        self.check("dying", again=[2])

    def test_who_cannot_be_reached(self):
        self.check("unreachable")

    def test_a_whole_state_outlives_who_gave_it(self):
        digest, steps = self.undisturbed("forgets", workers=2)
        agent, journal, events = self.start("forgets", "early", workers=2)
        self.wait_for_step(journal, events, agent, 10)
        os.mkfifo(journal.path + ".gate")
        self.kill(events, 1)
        self.wait(lambda: journal.find("early"), "the state of a new worker", agent)
        gate = open(journal.path + ".gate", "wb")
        self.wait_for_newcomer(events, agent)
        self.kill(events, 0)
        self.wait(lambda: len(events.find("worker_started")) == 4, "a new rank 0", agent)
        os.unlink(journal.path + ".gate")
        gate.close()
        self.assertEqual(digest, self.end(agent, journal))
        for place, lines in self.steps_of(journal).items():
            self.assertEqual({steps[place][0]}, set(lines), f"step and rank {place}")
        counts = {place: len(lines) for place, lines in self.steps_of(journal).items() if place[1] == 1}
        self.assertEqual({1}, set(counts.values()), "how often rank 1 has done its steps")


class Nodes(ElasticCase):
    """Two nodes on one machine's loopback, of two workers each; the second one joins later, and is lost."""

    def start_node(self, number, endpoint, journal, events, nodes="1:2", steps=150, *forms):
        meet = ["--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--local_addr", "127.0.0.1",
                "--rdzv_conf", f"is_host={1 - number},last_call_timeout=0.01"]
        return self.bed.run(f"node{number}", ["--nnodes", nodes, "--nproc_per_node", 2, *AHEAD, "--max_restarts", 3, *meet,
                                              "--event_log", events.path, TRAINING, journal.path, steps, *forms],
                            env={"OMP_NUM_THREADS": "1"})

    def test_the_job_grows_and_shrinks_in_its_processes(self):
        journal = self.bed.follower.follow(self.bed.path("steps"))
        events = self.bed.follower.follow(self.bed.path("events"))
        endpoint = f"127.0.0.1:{free_port()}"
        first = self.start_node(0, endpoint, journal, events)
        done = functools.partial(self.steps_in, journal)
        self.wait(lambda: done(2) >= 10, "steps of two", first)
        pids = {line["pid"] for line in journal.find("step")}
        second = self.start_node(1, endpoint, journal, events)
        self.wait(lambda: done(4) >= 10, "steps of four", first)
        second.signal(signal.SIGKILL)
        self.end(first, journal)
        self.assertEqual(pids, {line["pid"] for line in journal.find("end")}, "the first node's processes")
        self.check_samples(journal)

    def test_all_on_both_nodes_at_once_go_on_from_memory(self):
        """One worker of each node saves; after the restart all have the newest."""
        digest, _ = self.undisturbed("memory", workers=4)
        journal = self.bed.follower.follow(self.bed.path("steps"))
        events = [self.bed.follower.follow(self.bed.path(f"events{number}")) for number in range(2)]
        endpoint = f"127.0.0.1:{free_port()}"
        nodes = [self.start_node(number, endpoint, journal, events[number], "2", STEPS, "memory") for number in range(2)]
        for each in events:
            self.wait_for_step(journal, each, nodes[0], 25)
        for each in events:
            for rank in range(2):
                self.kill(each, rank)
        self.wait(lambda: len(journal.find("ready", generation=2)) == 4, "all again", nodes[0])
        done = max(line["step"] for line in journal.find("step", generation=1))
        self.assertTrue(all(done - 10 <= line["step"] for line in journal.find("ready", generation=2)))
        self.assertEqual(digest, self.end(nodes[0], journal))
        self.assert_status(0, nodes[1], PATIENCE)

    @staticmethod
    def steps_in(journal, world):
        """How many steps a job of that many ranks has done."""
        return len({line["step"] for line in journal.find("step", world=world)})

    def check_samples(self, journal):
        """Each sample of an epoch is learned from in one step."""
        steps = collections.defaultdict(list)
        for line in journal.find("step"):
            steps[line["step"]].append(line)
        seen = collections.defaultdict(set)
        for step, lines in steps.items():
            # What an older generation has done of it came to nothing, or is the same samples.
            newest = max(line["generation"] for line in lines)
            samples = {one for line in lines if line["generation"] == newest for one in line["samples"]}
            epoch = (step - 1) // 40
            self.assertFalse(seen[epoch] & samples, f"step {step}")
            seen[epoch] |= samples
        self.assertEqual(480, len(seen[0] | seen[1] | seen[2]))


class Default(ElasticCase):
    def test_a_new_worker_is_forked_without_an_option(self):
        journal, events = (self.bed.follower.follow(self.bed.path(name)) for name in ("steps", "events"))
        agent = self.bed.run("job", ["--nproc_per_node", 2, "--event_log", events.path, TRAINING, journal.path, 100000],
                             env={"OMP_NUM_THREADS": "1"})
        self.wait(lambda: events.find("warm_ready"), "the interpreter", agent)
        self.kill(events, 1)
        self.wait(lambda: events.find("warm_start", generation="2"), "the new worker", agent)
        self.assertEqual(["1"], [line["warm"] for line in events.find("warm_start", generation="2")])
        agent.signal(signal.SIGTERM)
        agent.wait(PATIENCE)


class Loops(KillsCase):
    def test_epochs_and_batches_have_their_numbers_in_a_new_worker(self):
        journal = self.check("epochs", count=80)
        for line in journal.find("step"):
            self.assertEqual((line["step"] - 1) % 40, line["number"], line)

    def test_a_new_workers_own_counts_are_named(self):
        agent, journal, events = self.start("range", steps=80)
        self.wait_for_step(journal, events, agent, 45)
        self.kill(events, 1)
        for said in ("rank 1: training is in epoch 1, and the loop's epoch is 0: the loop trains 1 epochs more than it should",
                     r"rank 1: \d+ steps are done, and the loop's step is 0"):
            self.wait(lambda said=said: re.search(said, agent.text()), said, agent)

    def test_parts(self):
        for number, script in enumerate(PARTS):
            output, command = self.bed.path(f"parts{number}.out"), [self.bed.environment["PYTHON_EXEC"], script]
            parts = self.bed.start_process(f"parts{number}", command, output=output, env=self.bed.environment)
            self.assert_status(0, parts, PATIENCE)
            self.assertIn("\nOK", parts.text())


class ElsewhereCase(ElasticCase):
    def test_alone_and_under_torchrun(self):
        """The same script; without ddprun nothing of it changes what is trained."""
        alone = self.bed.start_process("torchrun", [
            self.bed.environment["PYTHON_EXEC"], "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", TRAINING,
            self.bed.path("torchrun.steps"), "50"], output=self.bed.path("torchrun.out"), env={**self.bed.environment,
                                                                                             "OMP_NUM_THREADS": "1"})
        self.assert_status(0, alone, PATIENCE)
        with open(self.bed.path("torchrun.steps"), encoding="utf-8") as lines:
            text = lines.read()
        self.assertEqual(2, text.count('"event": "end"'))
        self.assertIn('"step": 50', text)


if __name__ == "__main__":
    main_with_torch()
