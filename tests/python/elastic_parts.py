#!/usr/bin/env python3
"""A Session's loop without failures (docs/ELASTIC.md): ways to write it, and mistakes. elastic_test.py runs this file."""

import collections
import contextlib
import copy
import io
import itertools
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from datetime import timedelta

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from ddprun import elastic  # noqa: E402
from ddprun.elastic import groups, handover, lightning, nccl, parts, reducer, resharding  # noqa: E402
from ddprun.elastic import set_up, snapshot, transfer, unkept  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

SAMPLES, BATCH = 44, 2  # 22 batches an epoch
PATIENCE = timedelta(seconds=60)
Shard = collections.namedtuple("Shard", "dim")


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, torch.full((3,), float(index))


class Case(unittest.TestCase):
    # Never destroyed: if DDP's reducer is the last owner of Gloo's group, it waits for the group's thread with Python's lock, for
    # which that thread may wait, to release a tensor.
    groups = []

    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.groups.append(dist.group.WORLD)
        self.addCleanup(dist.destroy_process_group)
        self.model = DistributedDataParallel(torch.nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.sampler = elastic.ElasticSampler(Data(), global_batch=BATCH, rank=0, world_size=1)
        self.loader = DataLoader(Data(), batch_sampler=self.sampler)
        self.seen = collections.Counter()

    def session(self, *arguments, **named):
        return elastic.Session(*(arguments or (self.model, self.optimizer)), sampler=self.sampler, **named)

    def backward(self, batch):
        self.seen.update(batch[0].tolist())
        self.model(batch[1]).sum().backward()

    def update(self, batch):
        self.backward(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Loops(Case):
    def test_a_break_goes_on_with_the_next_batch(self):
        session, passes = self.session(), 0
        while self.sampler.epoch < 2:
            passes += 1
            for number, batch in enumerate(session.batches(self.loader)):
                self.update(batch)
                if number == 4:
                    break
        self.assertEqual((44, 10), (session.step_number, passes))
        self.assertEqual({index: 2 for index in range(SAMPLES)}, self.seen)

    def test_a_bar_of_progress_asks_for_the_length(self):
        batches = self.session().batches(self.loader)
        self.assertEqual(22, len(batches))
        for number, batch in enumerate(batches):
            self.update(batch)
            self.assertEqual(22, len(batches))
        self.assertEqual(21, number)

    def test_a_break_from_a_bar_with_a_name(self):
        """The step is over with the loop, though a variable still holds what the loop ran over."""
        session = self.session()
        bar = session.batches(self.loader)
        for batch in bar:
            self.update(batch)
            break
        self.assertEqual([], session._kept)
        held = iter(session.batches(self.loader))
        self.update(next(held))
        for batch in session.batches(self.loader):
            self.update(batch)
        self.assertEqual({index: 1 for index in range(SAMPLES)}, self.seen)

    def test_a_copy_of_the_model_has_parameters_of_its_own(self):
        session = self.session()
        with unittest.mock.patch.object(DistributedDataParallel, "forward", DistributedDataParallel.forward):
            session._watch_passes()  # as where a loss is survived
            best, batch = copy.deepcopy(self.model), next(session.batches(self.loader))
            with torch.no_grad():
                for parameter in best.parameters():
                    parameter.zero_()
                self.assertEqual(0.0, best(batch[1]).sum().item())
                self.assertNotEqual(0.0, self.model(batch[1]).sum().item())
            pickle.dumps(self.model)

    def test_a_break_within_a_step(self):
        session, after = self.session(), []
        for number in session.epochs(1):
            self.assertEqual(0, number)
            for batch in session.batches(self.loader):
                self.backward(batch)
                if session.batch_number % 2:
                    self.optimizer.step()
                    after.append(session.batch_number)
                else:
                    break
        self.assertEqual((11, list(range(1, 22, 2))), (session.step_number, after))
        self.assertEqual({index: 1 for index in range(SAMPLES)}, self.seen)

    def test_a_loop_that_the_interpreters_end_leaves(self):
        """The error that has ended the program stays the last one that is said."""
        code = ("import os, elastic_parts\ncase = elastic_parts.Case(); case.setUp(); session = case.session()\n"
                "session._end = lambda: os.write(1, b'ended')\n"
                "def train(batches):\n case.update(next(batches)); raise ValueError('the error')\n"
                "train(session.batches(case.loader))")
        ended = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)
        said = [line for line in ended.stdout.splitlines() if not line.startswith("[Gloo]")]  # torch 2.10's
        self.assertEqual((1, []), (ended.returncode, said))
        self.assertTrue(ended.stderr.endswith("ValueError: the error\n"), ended.stderr)

    def accumulated(self, steps_at):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            session = self.session()
            for _ in session.epochs(2):
                for number, batch in enumerate(session.batches(self.loader)):
                    self.backward(batch)
                    if steps_at(number):
                        self.optimizer.step()
                        self.optimizer.zero_grad()
        self.assertEqual({index: 2 for index in range(SAMPLES)}, self.seen)
        return session.step_number, said.getvalue()

    def test_an_accumulation_that_does_not_divide_the_epoch(self):
        steps, said = self.accumulated(lambda number: (number + 1) % 4 == 0)
        self.assertEqual(10, steps)
        self.assertEqual(1, said.count("the epoch's last 2 batches came after the last optimizer.step()"), said)

    def test_an_accumulation_that_ends_with_the_epoch(self):
        def steps_at(number):
            return (number + 1) % 4 == 0 or number + 1 == len(self.loader)
        self.assertEqual((12, ""), self.accumulated(steps_at))


class Alone(Case):
    def test_ddp_goes_on_to_make_buffers_equal(self):
        self.session()
        self.assertTrue(self.model.broadcast_buffers)


class OldTorch(unittest.TestCase):
    def test_it_is_named(self):
        with unittest.mock.patch.object(torch, "__version__", "2.3.1+cpu"):
            self.assertEqual("torch 2.3.1+cpu is older than 2.4", elastic._obstacle("gloo", {}))
        self.assertEqual("", elastic._obstacle("gloo", {}))


class Nccl(unittest.TestCase):
    def test_only_the_group_of_its_own_takes_it(self):
        """Scripts that don't change have another way to their group."""
        refusal = "groups of nccl can't be renewed yet, only Gloo's"
        with unittest.mock.patch.object(nccl, "missing_parts", return_value=[]):
            self.assertEqual("", elastic._obstacle("nccl", {"device_id": 0}, takes_nccl=True))
            with unittest.mock.patch.dict(os.environ, {"DDPRUN_ELASTIC_NCCL": "1"}):
                self.assertEqual(refusal, elastic._obstacle("nccl", {}))

    def test_what_never_settles_is_refused(self):
        """It would learn what an aborted collective has left."""
        patched = unittest.mock.patch.object
        with patched(groups.groups, "has_nccl", True):
            with patched(elastic, "_membership", object()), self.assertRaisesRegex(ValueError, "a Trainer can't be kept"):
                elastic.attach(None)


class Mistakes(Case):
    def test_loaders_of_other_samplers(self):
        session = self.session()
        for loader in (DataLoader(Data(), batch_size=2, shuffle=True), DataLoader(Data(), batch_size=2, sampler=self.sampler)):
            with self.assertRaisesRegex(TypeError, "takes a loader of the Session's sampler"):
                next(session.batches(loader))

    def test_a_forgotten_scheduler(self):
        scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)
        with self.assertRaisesRegex(TypeError, "the optimizer has a scheduler of learning rates"):
            self.session()
        with self.assertRaisesRegex(TypeError, "the optimizer has a scheduler of learning rates"):
            self.session(extra={"average": torch.nn.Linear(1, 1)})
        self.session(self.model, self.optimizer, scheduler)
        self.session(extra={"rates": scheduler})

    def test_what_does_not_belong_together(self):
        other = torch.optim.SGD(torch.nn.Linear(3, 1).parameters(), lr=1.0)
        with self.assertRaisesRegex(TypeError, "an optimizer .SGD. of none of its models' parameters"):
            self.session(self.model, other)
        with self.assertRaisesRegex(TypeError, "a scheduler .StepLR. of an optimizer that it isn't given"):
            self.session(self.model, self.optimizer, torch.optim.lr_scheduler.StepLR(other, 1))

    def test_a_forgotten_model(self):
        forward = DistributedDataParallel.forward
        self.addCleanup(setattr, DistributedDataParallel, "forward", forward)
        other, session = DistributedDataParallel(torch.nn.Linear(3, 2)), self.session()
        session._watch_passes()  # as where a loss is survived
        for batch in session.batches(self.loader):
            with torch.no_grad():
                other(batch[1])
            with self.assertRaisesRegex(TypeError, "isn't given the Linear in DistributedDataParallel that this loop trains"):
                other(batch[1])
            self.update(batch)
            break
        other(batch[1])

    def test_an_optimizer_that_the_loop_makes(self):
        session, layer = self.session(), torch.nn.Linear(3, 1)
        for _ in session.batches(self.loader):
            for one in (self.optimizer, torch.optim.SGD(layer.parameters(), lr=1.0)):
                session._check_optimizer(one)
            with self.assertRaisesRegex(TypeError, "isn't given the Adam that this loop steps with: make it before the Session"):
                session._check_optimizer(torch.optim.Adam(self.model.parameters()))
            break


class Models(Case):
    def test_a_smaller_state_of_the_scripts_own_is_not_taken(self):
        """The line of PEFT's examples."""
        for one in (self.model.module, torch.nn.Sequential(self.model.module)):
            self.model.module.state_dict = lambda *_, **__: {}
            self.assertEqual({"weight", "bias"}, {name.split(".")[-1] for name in transfer.state_of(one)})
            self.assertEqual({}, self.model.module.state_dict())

    def test_what_was_frozen_since_stays_in_the_reducer(self):
        """Buckets are lists of parameters' numbers."""
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        wrapped, flags = DistributedDataParallel(model), reducer.trained(model)
        for _ in range(2):
            wrapped(torch.ones(2, 3)).sum().backward()
            self.assertTrue(reducer.rebuild(wrapped))
            layout = reducer.layout_of(wrapped)
            self.assertEqual([0, 1, 2, 3], sorted(sum(layout, [])))
            model[0].requires_grad_(False)
            reducer.reform(wrapped, layout, flags)
            self.assertEqual([False, False, True, True], reducer.trained(model))
            model[0].requires_grad_(True)
            reducer.reform(wrapped, None, flags)


class Optimizers(Case):
    def test_parameters_of_no_model(self):
        weight, peers = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.ones(2))
        own, given = (parts.Parts(self.model, torch.optim.SGD([*self.model.parameters(), one]), None, None, self.sampler, None)
                      for one in (weight, peers))
        own.load(given.state())
        self.assertEqual([1.0, 1.0], weight.tolist())

    def test_a_rate_that_is_a_tensor(self):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=torch.tensor(0.5), capturable=True)
        rate, kept = optimizer.param_groups[0]["lr"], parts.options_of(optimizer)
        rate.fill_(0.25)
        parts.put_options(optimizer, kept)
        self.assertIs(rate, optimizer.param_groups[0]["lr"])
        self.assertEqual(0.5, rate.item())


class Sockets(unittest.TestCase):
    def test_a_default_timeout_changes_no_socket_of_the_programs(self):
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
            self.addCleanup(socket.setdefaulttimeout, None)
            socket.setdefaulttimeout(30)
            for copy_of_one in groups._tcp_sockets():
                copy_of_one.close()
            self.assertTrue(os.get_blocking(own.fileno()))


class LightningHooks(unittest.TestCase):
    def test_a_copy_of_the_model_counts_nothing(self):
        journal = types.SimpleNamespace(depth=0, lock=threading.Lock())  # which can't be copied
        hook = lightning._Depth(journal, 1)
        copy.deepcopy(hook)()
        pickle.loads(pickle.dumps(hook))()
        self.assertEqual(0, journal.depth)
        hook()
        self.assertEqual(1, journal.depth)


class SetUps(Case):
    """What a new worker gets of a set-up's collectives."""

    def run_all(self, *tensors, name="broadcast"):
        with unittest.mock.patch.object(set_up, "_BYTES_MAX", 100):
            for one in tensors:
                self.set_up.run(lambda *_: None, name, ([one],), {})
        self.set_up.end([self.model])
        return self.set_up.why

    def test_what_is_more_than_a_new_worker_gets(self):
        for tensors, name, is_left_out in (
                ([torch.ones(200), torch.ones(1)], "broadcast", False),                        # of the script's own
                ([torch.ones(20), torch.ones(20)], "allreduce", False),
                ([torch.ones(20)] * 2 + [torch.ones(1)], "allreduce", False),                   # a small one that comes late
                ([torch.ones(200, dtype=torch.int64)], "broadcast", False),
                ([torch.ones(20), *self.model.parameters(), torch.ones(1)], "broadcast", True),
                ([torch.ones(20), torch.ones(40, 40)], "broadcast", True)):                     # a copy of a parameter
            with self.subTest(name=name, shapes=[one.shape for one in tensors]):
                self.set_up = set_up.SetUp()
                self.model.module.other = torch.nn.Parameter(torch.ones(40, 40))
                self.assertEqual("" if is_left_out else set_up._TOO_MUCH, self.run_all(*tensors, name=name))

    def test_collectives_of_torchs_own_group(self):
        groups.groups.set_up = set_up.SetUp()
        self.addCleanup(setattr, groups.groups, "set_up", None)
        end = set_up.watch_torchs()
        dist.all_reduce(torch.full((2,), 7.0))
        dist.broadcast(torch.full((1,), 8, dtype=torch.int64), 0)
        end()
        dist.all_reduce(torch.full((2,), 9.0))
        self.assertEqual([[7.0, 7.0], [8]], [one[0][0].tolist() for one in groups.groups.set_up.results.values()])


class Handover(unittest.TestCase):
    STATE = {"one": torch.arange(6.0).reshape(2, 3).t(), "list": [torch.tensor(True), torch.empty(0, 4)], "text": "a",
             "none": None, "large": torch.randn(300, 300).bfloat16(), "parameter": torch.nn.Parameter(torch.ones(2))}

    def setUp(self):
        groups.groups.over, groups.groups.address = groups.Over(), "127.0.0.1"
        self.addCleanup(setattr, groups.groups, "over", None)
        self.offer = handover.Offer((3, 0), self.STATE)
        self.addCleanup(self.offer.close)

    def test_all_kinds_of_tensors(self):
        fetch = handover.Fetch([b"", self.offer.word], 0)
        state = fetch.result()
        self.assertEqual((3, 0), fetch.position)
        self.assertEqual(list(self.STATE), list(state))
        for given, own in zip(transfer.tensors_in(state), transfer.tensors_in(self.STATE)):
            self.assertTrue(torch.equal(given, own) and given.dtype == own.dtype)

    def test_only_a_newer_one_is_fetched(self):
        for position, comes in ((None, True), ((2, 5), True), ((3, 0), False), ((4, 0), False)):
            self.assertEqual(comes, handover.Fetch([self.offer.word], 0, position).result() is not None, position)
        self.assertIsNone(handover.Fetch([b"", b""], 0).result())

    def test_a_preferred_one_is_fetched(self):
        preferred = handover.Offer((3, 0), {"text": "preferred"}, preferred=True)
        self.addCleanup(preferred.close)
        for rank in range(2):
            self.assertEqual({"text": "preferred"}, handover.Fetch([self.offer.word, preferred.word], rank).result())

    def test_a_stranger_gets_nothing(self):
        address = pickle.loads(self.offer.word)[2]
        for secret in (b"x" * 32, b"short"):
            with socket.create_connection(address) as stranger:
                stranger.sendall(secret)
                stranger.shutdown(socket.SHUT_WR)
                self.assertEqual(b"", stranger.recv(1))

    def test_the_end_of_an_offer_and_of_a_generation(self):
        offer = handover.Offer((3, 0), self.STATE)
        with socket.create_connection(pickle.loads(offer.word)[2]):  # a silent peer holds up nobody
            offer.close()
        self.assertIsNone(handover.Fetch([offer.word], 0).result())
        with socket.create_server(("127.0.0.1", 0)) as silent:
            fetch = handover.Fetch([pickle.dumps(((3, 0), False, silent.getsockname(), b"x" * 32))], 0)
            groups.groups.over.tell("a peer was lost")
            self.assertIsNone(fetch.result())


class OtherNumbers(unittest.TestCase):
    """A state of a number of ranks, for another number of ranks."""

    @staticmethod
    def cut(whole, dimension, ranks, rank):
        """A rank's part of a tensor; those of the last ranks may be empty."""
        parts = list(whole.chunk(ranks, dimension))
        return (parts + [parts[0].narrow(dimension, 0, 0)] * ranks)[rank].clone()

    def test_all_cuts(self):
        shape_of = {0: lambda length: (length, 3), 1: lambda length: (2, length)}
        for before, now, length, dimension in itertools.product(range(1, 6), range(1, 6), range(1, 12), shape_of):
            whole, read = torch.rand(shape_of[dimension](length)), []
            mesh = types.SimpleNamespace(size=lambda now=now: now)
            like = types.SimpleNamespace(placements=(Shard(dimension),), device_mesh=mesh)
            own = {"models": [{"a": like}], "optimizers": [{"state": {0: like}}]}

            def load(source, before=before, dimension=dimension, whole=whole, read=read):
                read.append(source)
                part = self.cut(whole, dimension, before, source)
                first, second = (snapshot.Shard(one, whole.shape, whole.stride()) for one in (part, -part))
                state = {0: {"m": second, "step": torch.tensor(7)}}
                return {"models": [{"a": first}], "optimizers": [{"state": state}], "own": source}
            for rank in range(now):
                read.clear()
                tree, case = resharding.tree_of(load, before, rank, now, own), (before, now, length, dimension, rank)
                part = self.cut(whole, dimension, now, rank)
                self.assertTrue(torch.equal(part, tree["models"][0]["a"].tensor), case)
                self.assertTrue(torch.equal(-part, tree["optimizers"][0]["state"][0]["m"].tensor), case)
                self.assertEqual((rank % before, len(set(read))), (tree["own"], len(read)), case)

    def test_what_is_cut_otherwise(self):
        like = types.SimpleNamespace(placements=(Shard(0), Shard(1)), device_mesh=types.SimpleNamespace(size=lambda: 4))
        for own in (like, torch.ones(2), None):
            with self.assertRaisesRegex(resharding.OtherLayout, "isn't cut along one dimension among all ranks"):
                resharding.tree_of(lambda _: {"a": snapshot.Shard(torch.ones(1, 2), (2, 2), (2, 1))}, 2, 0, 4, {"a": own})


class Unkept(unittest.TestCase):
    """What a script may have beside its training, in globals and attributes."""

    def test_odd_objects_are_looked_at_without_an_error(self):
        class Odd:
            def __getattr__(self, name):
                raise ValueError(name)
        with torch.inference_mode():
            odd = [Odd(), torch.ones(2)]
        if numpy is not None:
            odd += [numpy.sin, numpy.vectorize(len), numpy.float32(1), numpy.dtype("f4"), numpy.array(None)]
        for one in odd:
            self.assertEqual(unkept._Print(set()).of(one), unkept._Print(set()).of(one), type(one))

    def test_changes_are_seen(self):
        own = types.SimpleNamespace(first=[1], second=[2], third={"a": [3], "b": [4], "c": [5]})
        values = [own, ["a"], {"a": 1, "b": 2, "c": 3}, torch.ones(2)] + ([numpy.ones(2)] if numpy is not None else [])
        before = [unkept._Print(set()).of(one) for one in values]
        self.assertEqual(before, [unkept._Print(set()).of(one) for one in values])
        own.third["c"].append(6)
        values[1].append("b")
        for one in values[2:]:
            one["c" if isinstance(one, dict) else 0] = 5
        for one, then in zip(values, before):
            self.assertNotEqual(then, unkept._Print(set()).of(one), type(one))

    def test_plain_attributes_of_torchs_modules(self):
        model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.LSTM(2, 2), torch.nn.BatchNorm1d(2))
        watch = unittest.mock.Mock(_objects=unkept.modules_of(model), _frames=[], _kept=set())
        before = unkept.Watch._now(watch)
        model[2](model[1](torch.ones(3, 2))[0]).sum().backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        model.eval()
        self.assertEqual(before, unkept.Watch._now(watch))
        model[0].p, model[2].momentum = 0.1, 0.2
        now = unkept.Watch._now(watch)
        self.assertEqual({"p of 0", "momentum of 2"}, {name for name in now if now[name] != before[name]})

    def test_an_average_of_the_model_is_seen(self):
        model = torch.nn.Linear(2, 2)
        average = torch.optim.swa_utils.AveragedModel(model)
        own = types.SimpleNamespace(average=average, part=model, parameters=[*model.parameters()])
        watch = unkept.Watch({"the callback": (own, set())}, [torch.nn.Sequential(model)])
        with torch.no_grad():
            model.weight.add_(1)
        self.assertEqual([], [one for one in watch.changed() if one.endswith("the callback")])
        average.update_parameters(model)
        self.assertEqual(["average of the callback"], [one for one in watch.changed() if one.endswith("the callback")])

    @unittest.skipIf(numpy is None, "no numpy")
    def test_a_file_of_a_terabyte_is_not_read(self):
        with tempfile.TemporaryFile() as file:
            file.truncate(1 << 40)
            unkept._Print(set()).of(numpy.memmap(file, dtype="u2", mode="r"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
