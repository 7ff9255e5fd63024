#!/usr/bin/env python3
"""The parts of checkpoints in memory (docs/ELASTIC.md), without an agent: states of all kinds come back bit by bit, and a process
that is killed while it writes leaves no checkpoint that looks whole. memory_test.py runs this file where torch is."""

import contextlib
import io
import json
import os
import random
import signal
import socket
import sys
import threading
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

import torch  # noqa: E402
from ddprun.elastic import peers, replicas  # noqa: E402
from ddprun.elastic import slots as slots_module  # noqa: E402
from ddprun.elastic.checkpoints import Checkpoints  # noqa: E402
from ddprun.elastic.memory import MemoryCheckpoint  # noqa: E402
from ddprun.elastic.session_memory import SessionMemory  # noqa: E402
from ddprun.elastic.slots import Slots  # noqa: E402
from ddprun.grpc_channel import RESOURCE_EXHAUSTED, RpcError  # noqa: E402
from seeds import drawn_seed  # noqa: E402


class Agent:
    """Files as the agent's: another size is another file."""

    def __init__(self, most=1 << 40):
        self.files, self.most = {}, most

    def keep_memory(self, slot, size):
        descriptor, before = self.files.get(slot, (-1, 0))
        if size > before:
            if size > self.most:
                raise RpcError(RESOURCE_EXHAUSTED, f"--memory_checkpoints allows {self.most}")
            descriptor = os.memfd_create("memory")
            os.ftruncate(descriptor, size)
            self.files[slot] = (descriptor, size)
        return (f"/proc/self/fd/{descriptor}", max(size, before)) if descriptor >= 0 else ("", 0)


def keeper_of(agent, optimizers=(), count=2):
    return Checkpoints(agent, count, list(optimizers), 0, 1)


class States(unittest.TestCase):
    def restored(self, tree, modules=None):
        agent = Agent()
        keeper = keeper_of(agent)
        keeper.save(1, tree)
        keeper.wait()
        self.assertEqual("", keeper.why_off)
        return keeper_of(agent).load(1, modules or {})

    def assert_same(self, one, other):
        self.assertIs(type(one), type(other))
        if isinstance(one, torch.Tensor):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            raw = [value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else value for value in (one, other)]
            self.assertTrue(torch.equal(*raw))
        elif isinstance(one, dict):
            self.assertEqual(list(one), list(other))
            for key in one:
                self.assert_same(one[key], other[key])
        elif isinstance(one, (list, tuple)):
            self.assertEqual(len(one), len(other))
            for first, second in zip(one, other):
                self.assert_same(first, second)
        else:
            self.assertEqual(one, other)

    def test_trees_of_all_kinds(self):
        large = torch.randn(300, 300)
        tree = {
            "tensors": [torch.randn(3, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)],
            "integers": (torch.arange(5), torch.tensor(True), torch.tensor(7, dtype=torch.uint8)),
            "complex": torch.randn(4, dtype=torch.complex64), "empty": torch.empty(0, 3), "nan": torch.full((2,), float("nan")),
            "large": large, "again": large, "part": large[10:20], "turned": large.t(), "every other": large[::2, ::3],
            "channels last": torch.randn(2, 3, 40, 40).to(memory_format=torch.channels_last),
            "gradient": torch.randn(4, requires_grad=True), 7: {"plain": ["text", None, 1.5, {1, 2}, b"bytes"]},
            "sparse": torch.eye(4).to_sparse().coalesce().values(), "random": random.getstate()}
        self.assert_same({**tree, "gradient": tree["gradient"].detach()}, self.restored(tree))

    def test_a_module_is_restored_in_place(self):
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 200, 9).to(memory_format=torch.channels_last), torch.nn.BatchNorm2d(200),
                                     torch.nn.Linear(300, 300))
        module[2].tied = module[2].weight
        wanted = {name: value.clone() for name, value in module.state_dict().items()}
        agent = Agent()
        keeper = keeper_of(agent)
        keeper.save(1, {"model": module.state_dict()})
        keeper.wait()
        places = {name: value.data_ptr() for name, value in module.state_dict().items()}
        with torch.no_grad():
            for value in module.state_dict().values():
                value.zero_()
        self.assertEqual({"model": None}, keeper_of(agent).load(1, {("model",): module}))
        self.assert_same(dict(wanted), dict(module.state_dict()))
        self.assertEqual(places, {name: value.data_ptr() for name, value in module.state_dict().items()})

    def test_a_module_with_another_state_is_left_to_itself(self):
        class Odd(torch.nn.Linear):
            def get_extra_state(self):
                return {"said": 1}

            def set_extra_state(self, state):
                pass
        module = Odd(2, 2)
        tree = self.restored({"model": module.state_dict()}, {("model",): module})
        self.assertEqual({"said": 1}, tree["model"]["_extra_state"])
        self.assertEqual([], [key for key in tree["model"] if key not in module.state_dict()])


class Saves(unittest.TestCase):
    """A training whose optimizer's step waits for the copy."""

    def setUp(self):
        torch.manual_seed(1)
        self.model = torch.nn.Linear(400, 400)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.agent = Agent()
        self.keeper = keeper_of(self.agent, [self.optimizer])
        self.step()

    def step(self):
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()

    def tree(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def bits(self):
        return [value.clone() for value in (self.model.weight.detach(), *self.optimizer.state[self.model.weight].values())]

    def saved(self, step):
        tree = keeper_of(self.agent).load(step, {})
        return [tree["model"]["weight"], *tree["optimizer"]["state"][0].values()]

    def check_saves(self):
        for step in range(1, 20):
            wanted = self.bits()
            self.keeper.save(step, self.tree())
            self.step()
            self.keeper.wait()
            for one, other in zip(wanted, self.saved(step)):
                self.assertTrue(torch.equal(one, other), f"step {step}")

    def test_what_is_saved_is_the_state_at_the_call(self):
        self.check_saves()

    def test_a_state_that_cannot_be_pickled(self):
        """Training goes on without checkpoints."""
        self.keeper.save(1, {"scheduler": {"lambda": lambda: 0}})
        self.assertIn("pickle", self.keeper.why_off)

    def test_twin_an_update_that_does_not_wait(self):
        """What then is copied may be of two steps. torch's count of changes shows it, and it doesn't count as a checkpoint."""
        self.keeper.touch_ahead(self.tree())
        self.keeper.wait()
        write = slots_module._copy
        self.keeper._before_update = None
        hooked, self.optimizer._optimizer_step_pre_hooks = self.optimizer._optimizer_step_pre_hooks, type(
            self.optimizer._optimizer_step_pre_hooks)()
        self.assertEqual(1, len(hooked))

        def updating(*arguments):
            slots_module._copy = write
            self.step()
            return write(*arguments)
        slots_module._copy = updating
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.keeper.save(1, self.tree())
            self.keeper.wait()
        self.assertEqual([], self.keeper.whole())
        self.assertIn("rank 0: parameters changed between two updates", said.getvalue())
        self.check_saves()  # at once

    def test_pages_are_touched_ahead(self):
        keeper = keeper_of(agent := Agent(), [torch.optim.Adam(self.model.parameters())])
        keeper.touch_ahead({"model": self.model.state_dict(), "optimizer": {}})
        keeper.wait()
        before = dict(agent.files)
        self.assertEqual(2, len(before))
        keeper.save(1, self.tree())
        keeper.save(2, self.tree())
        keeper.wait()
        self.assertEqual(before, agent.files, "there was room for the optimizer's state")

    def test_a_bound_ends_it(self):
        self.agent.most = 1000
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for step in range(3):
                self.keeper.save(step, self.tree())
            self.keeper.wait()
        self.assertEqual("ddprun.elastic: rank 0: no checkpoints in memory: --memory_checkpoints allows 1000\n", said.getvalue())
        self.assertEqual([], self.keeper.whole())

    def test_a_state_that_grows(self):
        for size in (10, 100, 1000):
            for step in range(size, size + 3):
                self.keeper.save(step, {"values": torch.full((size, size), float(step))})
            self.keeper.wait()
            self.assertEqual([size + 1, size + 2], sorted(head.step for head in keeper_of(self.agent).whole()))
            self.assertEqual(size + 2, keeper_of(self.agent).load(size + 2, {})["values"][0, 0].item())


class Agreement(unittest.TestCase):
    """Which checkpoint the ranks of a Session take."""

    def agree(self, *notes):
        return SessionMemory.agree([json.dumps(note).encode() for note in notes])

    def test_the_newest_of_any_node(self):
        fresh = [[0, 0], None]
        self.assertEqual((None, 0), self.agree(fresh, fresh))
        self.assertEqual((1, 20), self.agree(fresh, [[0, 0], [20, [0, 240]]]))
        self.assertEqual((2, 41), self.agree([[0, 0], [40, [1, 0]]], fresh, [[0, 0], [41, [1, 12]]]))
        self.assertEqual((0, 40), self.agree([[0, 0], [40, [1, 0]]], [[0, 0], [40, [1, 0]]]), "any of the same")

    def test_a_newer_one_of_the_scripts_own_counts(self):
        self.assertEqual((None, 0), self.agree([[1, 12], [40, [1, 0]]], [[1, 12], None]))
        self.assertEqual((0, 40), self.agree([[1, 0], [40, [1, 0]]], [[1, 0], None]))


class Place:
    def __init__(self, node, local=0, locals_=1):
        self.node_address, self.group_rank, self.local_rank, self.local_world_size = "127.0.0.1", node, local, locals_


class Worker:
    """One rank, on a node of its own, with its checkpoints and copies."""

    def __init__(self, rank, place=None, count=2):
        self.rank, self.agent, self.count = rank, Agent(), count
        self.agent.assignment = lambda *_: place or Place(rank)
        self.restart()

    def restart(self, rank=None):
        """Another process, which finds what the agent has kept."""
        self.rank = self.rank if rank is None else rank
        self.shared = torch.full((100, 200), 1.5)
        self.keeper = Checkpoints(self.agent, self.count, [], self.rank, 2)
        self.keeper.replicas = replicas.Replicas(self.agent, self.keeper.slots, self.count)
        self.keeper.shared = lambda: {self.shared.untyped_storage().data_ptr()}
        return self

    def save(self, step):
        own = torch.full((300, 200), 10.0 * self.rank + step)
        self.keeper.save(step, {"shared": self.shared, "own": own, "small": self.rank})
        self.keeper.wait()

    def note(self):
        return self.keeper.replicas.note()

    def bytes(self, first=3):
        """Of its files from that slot on: those of copies."""
        return sum(size for number, (_, size) in self.agent.files.items() if number >= first)


class Copies(unittest.TestCase):
    """Checkpoints on other nodes (replicas.py)."""

    @classmethod
    def workers(cls):
        workers = [Worker(0), Worker(1)]
        cls.meet(workers)
        return workers

    @staticmethod
    def meet(workers):
        notes = [worker.note() for worker in workers]
        for worker in workers:
            worker.keeper.replicas.begin(notes, worker.rank)

    @staticmethod
    def saved(workers, step):
        for worker in workers:
            worker.save(step)
        for worker in workers:
            worker.keeper.replicas.wait()

    def fetched(self, holder, rank, step):
        slot, head = Worker(rank).keeper.replicas.fetch(holder.note(), step, rank, 2)
        tree = holder.keeper.load(step, {}, (slot, head))
        self.assertEqual((step, rank, 2), head[1:4])
        self.assertEqual({float(10 * rank + step)}, set(tree["own"].flatten().tolist()))
        self.assertEqual(rank, tree["small"])
        return set(tree["shared"].flatten().tolist())

    def test_a_copy_is_without_what_ranks_share(self):
        one, other = workers = self.workers()
        self.saved(workers, 10)
        self.assertLess(one.bytes(), 300 * 200 * 4 + 8192)
        other.shared.fill_(99)  # what comes of it is of its checkpoint
        self.assertEqual({1.5}, self.fetched(one.restart(), 1, 10))
        self.assertEqual({1.5}, self.fetched(one, 0, 10), "its own")

    def test_a_copy_is_whole_where_they_differ(self):
        one, other = workers = self.workers()
        other.shared.fill_(2.5)
        self.saved(workers, 10)
        self.assertGreater(one.bytes(), 400 * 200 * 4)
        self.assertEqual({2.5}, self.fetched(one, 1, 10))
        self.assertEqual({1.5}, self.fetched(other, 0, 10))

    def test_what_is_fetched_is_kept(self):
        """The lost node's next worker has it in its agent's memory at once, and gives the others their copies."""
        one, _ = workers = self.workers()
        self.saved(workers, 10)
        workers = [one.restart(), Worker(1)]
        notes = [worker.note() for worker in workers]
        self.assertEqual((10, [0, 0]), replicas.choose(notes))
        workers[1].keeper.replicas.fetch(notes[0], 10, 1, 2)
        self.meet(workers)
        for worker in workers:
            worker.keeper.replicas.wait()
        self.assertEqual([], [one for one in workers[1].note()["own"] if one[:3] != [10, 1, 2]])
        self.assertEqual((10, [1, 1]), replicas.choose([Worker(0).note(), workers[1].note()]))

    def test_without_room_it_is_fetched_all_the_same(self):
        one, other = workers = self.workers()
        self.saved(workers, 10)
        self.assertEqual({1.5}, self.fetched(one, 1, 10))
        small = Worker(1)
        small.agent.most = 0
        slot, head = small.keeper.replicas.fetch(one.note(), 10, 1, 2)
        self.assertEqual([], small.keeper.whole())
        self.assertEqual({20.0}, set(small.keeper.load(10, {}, (slot, head))["own"].flatten().tolist()))
        other.keeper.replicas.wait()

    def test_a_bound_is_said(self):
        one, other = self.workers()
        other.agent.most = 1000
        said = io.StringIO()
        with contextlib.redirect_stderr(said), unittest.mock.patch.object(replicas, "_OWN_SECONDS", 0):
            for step in (10, 20):
                one.save(step)
                one.keeper.replicas.wait()
        self.assertRegex(said.getvalue(), r"^ddprun\.elastic: rank 0: no copies of checkpoints on another node: rank \S+: "
                                          r"--memory_checkpoints allows 1000\n$")
        self.assertEqual([10, 20], sorted(head.step for head in one.keeper.whole()))

    def test_a_stranger_is_given_nothing(self):
        one, _ = workers = self.workers()
        self.saved(workers, 10)
        with self.assertRaises(OSError):
            Worker(1).keeper.replicas.fetch({**one.note(), "secret": "00" * 32}, 10, 1, 2)

    def test_a_silent_stranger_is_sent_away(self):
        with unittest.mock.patch.object(peers, "_STRANGER_SECONDS", 0.01), \
                socket.create_connection(Worker(0).note()["address"]) as stranger:
            stranger.settimeout(20)
            self.assertEqual(b"", stranger.recv(1))

    def test_several_workers_send_to_one(self):
        """The next node has fewer: each sender has slots of its own."""
        senders = [Worker(rank, Place(0, rank, 2)) for rank in range(2)]
        receiver = Worker(2, Place(1))
        self.meet([*senders, receiver])
        for step in (10, 20):
            self.saved([*senders, receiver], step)
        self.assertEqual([[10, 0], [10, 1], [20, 0], [20, 1]], sorted(one[:2] for one in receiver.note()["copies"]))


class Waits(unittest.TestCase):
    """Two slots suffice for copies, because no rank begins the step of a checkpoint before the last one's copy has arrived."""

    def calls(self, every, steps):
        memory = MemoryCheckpoint.__new__(MemoryCheckpoint)
        memory.every, memory._least, memory._tree = every, 1, dict
        memory._checkpoints = calls = unittest.mock.Mock(why_off="")
        for step in range(1, steps + 1):
            memory.save(step)
        return [(name, *arguments[:1]) for name, arguments, _ in calls.method_calls]

    def test_before_the_step_of_the_next_checkpoint(self):
        self.assertEqual([("wait_for_copy",), ("save", 3), ("wait_for_copy",), ("save", 6)], self.calls(3, 7))

    def test_before_each_checkpoint_of_each_step(self):
        self.assertEqual([("wait_for_copy",), ("save", 1), ("wait_for_copy",), ("save", 2)], self.calls(1, 2))

    def test_a_copy_under_way_is_waited_for(self):
        one, other = workers = Copies.workers()
        arrives, sends = threading.Event(), slots_module.Slot.send
        with unittest.mock.patch.object(slots_module.Slot, "send", lambda *arguments: arrives.wait() and sends(*arguments)):
            other.save(10)
            one.save(10)
            waiting = threading.Thread(target=one.keeper.wait_for_copy)
            waiting.start()
            self.assertEqual([], other.note()["copies"])
            self.assertTrue(waiting.is_alive())
            arrives.set()
            waiting.join()
        self.assertEqual([[10, 0, 2]], [head[:3] for head in other.note()["copies"]])
        for worker in workers:
            worker.keeper.replicas.wait()


class Choice(unittest.TestCase):
    """Which step ranks go on from, and which rank has it."""

    def choose(self, *notes):
        """notes: (own, copies), each [(step, rank, digest)]."""
        full = [[[step, rank, len(notes), shared] for step, rank, shared in found] for note in notes for found in note]
        return replicas.choose([{"own": own, "copies": copies} for own, copies in zip(full[::2], full[1::2])])

    def test_own_ones(self):
        self.assertEqual((20, [0, 1]), self.choose(([(10, 0, 0), (20, 0, 0)], [(20, 1, 0)]), ([(20, 1, 0), (30, 1, 0)], [])))
        self.assertEqual((None, None), self.choose(([(10, 0, 0)], []), ([(20, 1, 0)], [])))

    def test_a_lost_node(self):
        self.assertEqual((10, [0, 0]), self.choose(([(10, 0, 0), (20, 0, 0)], [(10, 1, 0)]), ([], [])))
        self.assertEqual((None, None), self.choose(([(10, 0, 0)], []), ([], [])))

    def test_ranks_are_on_other_nodes(self):
        self.assertEqual((10, [1, 0]), self.choose(([(10, 1, 0)], []), ([(10, 0, 0)], [])))

    def test_a_copy_needs_what_ranks_share(self):
        self.assertEqual((20, [0, 0]), self.choose(([(20, 0, 7)], [(20, 1, 7)]), ([], [])))
        self.assertEqual((None, None), self.choose(([(20, 0, 7)], [(20, 1, 8)]), ([], [])))
        self.assertEqual((None, None), self.choose(([(20, 0, 0)], [(20, 1, 7)]), ([], [])))

    def test_another_number_of_ranks(self):
        self.assertEqual((10, [0]), replicas.choose([{"own": [[10, 0, 1, 0]]}]))
        self.assertEqual((None, None), replicas.choose([{"own": [[10, 0, 2, 0]]}]))


class Kills(unittest.TestCase):
    """A process saves as fast as it can, and is killed at a random moment."""

    KILLS, VALUES = 100, 20_000

    def child(self, agent, moment):
        """Is killed when it has copied `moment` pieces."""
        pid = os.fork()
        if pid != 0:
            self.assertEqual(signal.SIGKILL, os.waitpid(pid, 0)[1])
            return
        copy, left = slots_module._copy, [moment]

        def counting(to, source, size):
            if left[0] == 0:
                copy(to, source, size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return copy(to, source, size)
        slots_module._copy = counting
        slots = Slots(agent, 2)
        step = max((head.step for _, head in slots.whole()), default=0)
        while True:
            step += 1
            values = [torch.full((self.VALUES,), float(step)) for _ in range(4)]
            slots.write(step, 0, 1, str(step).encode(), [(one.data_ptr(), 4 * self.VALUES) for one in values])

    def found(self, agent):
        """(the newest checkpoint's step, whether all of it is that step's)."""
        slots = Slots(agent, 2)
        slot, head = max(slots.whole(), key=lambda one: one[1].number)
        values = [torch.empty(self.VALUES) for _ in range(4)]
        slot.read(head, [(one.data_ptr(), 4 * self.VALUES) for one in values])
        return head.step, slot.text(head) == str(head.step).encode() and all(bool((one == head.step).all()) for one in values)

    def outcomes(self):
        agent, random_, last = Agent(), random.Random(drawn_seed()), 0
        for slot in range(2):
            agent.keep_memory(slot, 8 * 4 * self.VALUES)  # a child's own files would end with it
        self.child(agent, 9)  # two are whole
        for _ in range(self.KILLS):
            self.child(agent, random_.randrange(12))
            step, is_right = self.found(agent)
            yield is_right and step >= last
            last = step

    def test_what_is_found_is_whole(self):
        self.assertEqual([True] * self.KILLS, list(self.outcomes()))

    def test_twin_without_the_slots_numbers(self):
        with unittest.mock.patch.object(slots_module, "is_whole", return_value=True):
            self.assertIn(False, list(self.outcomes()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
