#!/usr/bin/env python3
"""Groups that outlive the loss of a peer (docs/ELASTIC.md): errors, and the end of collectives. elastic_test.py runs it."""

import contextlib
import ctypes
import io
import os
import socket
import sys
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
from ddprun.elastic import groups, membership  # noqa: E402

PATIENCE = timedelta(seconds=60)


class Errors(unittest.TestCase):
    def test_only_those_of_collectives_wait_for_the_agents_word(self):
        """Others end the process at once, as ever."""
        member, over, words = membership.Membership(None, 1, 0, 2), groups.Over(), []
        groups.groups.over = over
        self.addCleanup(setattr, groups.groups, "over", None)
        with unittest.mock.patch.object(over, "wait", side_effect=lambda *_: words.append(1)):
            for text in ("connection to the database lost", "the peer timed out", "a socket"):
                self.assertFalse(member.caused(RuntimeError(text)))
            self.assertEqual(0, len(words))
            for error in (RuntimeError("[../gloo/transport/tcp/pair.cc:456] Connection closed by peer"),
                          dist.DistBackendError("x"), dist.DistStoreError("x"), elastic.PeerError("x")):
                member.caused(error)
            self.assertEqual(4, len(words))


class Ends(unittest.TestCase):
    class Store(dist.HashStore):
        def gather(self, name, value, names):
            return [value]

    def test_released_groups_have_no_threads(self):
        """One that asked for Python's lock while the interpreter ends would abort the process."""
        of_all = groups.Groups()
        of_all.store, of_all.over = self.Store(), groups.Over()
        self.addCleanup(of_all.over.tell, "the end")
        backend = of_all._connect(types.SimpleNamespace(key="0", rank=lambda: 0, size=lambda: 1, timeout=PATIENCE))
        self.assertTrue(backend.threads <= groups._threads())
        backend.release()
        self.assertNotIn(groups._NAME_OF_THREADS, [groups._line(one, "comm") for one in backend.threads])


class Forgotten(unittest.TestCase):
    """A collective of two ranks, in which one takes no part."""

    def setUp(self):
        store, self.gloo, self.options = dist.HashStore(), [None, None], [dist.ProcessGroupGloo._Options() for _ in range(2)]
        devices = [groups._device() for _ in range(2)]

        def connect(rank):
            self.options[rank]._devices, self.options[rank]._threads = [devices[rank][0]], groups._THREADS
            self.gloo[rank] = dist.ProcessGroupGloo(store, rank, 2, self.options[rank])
        before = groups._threads()
        other = threading.Thread(target=connect, args=(1,))
        other.start()
        connect(0)
        self.backend = groups._Backend([address for _, address in devices], PATIENCE)
        other.join()
        self.backend.inner = self.gloo[0]
        self.backend.threads = groups._threads() - before
        self.tensor = torch.ones(3)
        self.work = self.backend.run("allreduce", ([self.tensor], dist.AllreduceOptions()), {})

    def shut_down(self):
        self.backend.shut_down("a peer is lost")
        self.backend.await_ends()

    def test_gloo_ends_it(self):
        self.shut_down()
        self.assertFalse(self.backend.gave_up)
        with self.assertRaises(RuntimeError):
            self.work.get_future().wait()

    def test_the_errors_name_what_to_do(self):
        groups.groups.over, groups.groups.advice = groups.Over(), "; do that"
        self.addCleanup(setattr, groups.groups, "over", None)
        self.addCleanup(setattr, groups.groups, "advice", "")
        self.shut_down()
        groups.groups.over.tell("a peer is lost")
        with self.assertRaisesRegex(elastic.PeerError, "; do that$"):
            self.work.wait()
        with self.assertRaisesRegex(elastic.PeerError, "no collective begins: a peer is lost; do that"):
            self.backend.run("allreduce", ([self.tensor], dist.AllreduceOptions()), {})

    def test_the_groups_time_is_over(self):
        """C++ waits for the future, and Gloo would for a year."""
        over, future = groups.Over(), self.work.get_future()
        self.backend.timeout = timedelta(seconds=0.1)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.backend.watch_time(over)
        self.assertIn("timed out waiting 0.1s for a collective\n", said.getvalue())
        with self.assertRaises(RuntimeError):
            future.wait()

    def test_the_groups_time_is_not_over(self):
        """Python's own waits look at the clock; and a generation's end."""
        over = groups.Over()
        self.backend.timeout = timedelta(seconds=0.05)
        watching = threading.Thread(target=self.backend.watch_time, args=(over,))
        watching.start()
        with self.assertRaisesRegex(RuntimeError, "Timed out"):
            self.work.wait(timedelta(seconds=0.3))
        over.tell("a peer is lost")
        watching.join(60)
        self.assertEqual((False, ""), (watching.is_alive(), self.backend.why))

    def test_the_agent_is_told_meanwhile(self):
        """The collective waits for the other rank, because the sockets stay open."""
        over = groups.Over()
        over.add(self.backend)
        with unittest.mock.patch.object(socket.socket, "shutdown"):
            telling = threading.Thread(target=over.tell, args=("a peer is lost",))
            telling.start()
            telling.join(5)
            told = not telling.is_alive(), over.has_ended
            self.gloo[1].allreduce([torch.ones(3)]).wait()
            telling.join()
        self.assertEqual((True, False), told)
        self.assertTrue(over.wait(lambda over: over.has_ended, 60))

    def test_gloo_forgets_it(self):
        for one in self.gloo:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))  # it isn't destroyed, so it never ends
        self.backend.know_sockets()
        with unittest.mock.patch.object(groups, "_tcp_sockets", return_value=[]):  # as if Gloo had closed them
            self.shut_down()
        self.assertTrue(self.backend.gave_up)
        self.assertIs(self.tensor, self.work.get_future().wait()[0])

    def test_gloo_forgets_it_and_another_thread_has_ended(self):
        """One that was started meanwhile, in a version of torch whose threads have no names."""
        self.backend.threads.add("4194305")  # more than the kernel's numbers
        with unittest.mock.patch.object(groups, "_NAME_OF_THREADS", "none"):
            self.test_gloo_forgets_it()

    def test_gloo_is_late(self):
        self.check_late()

    def test_gloo_is_late_and_the_sockets_have_no_addresses(self):
        self.check_late(has_no_addresses=True)

    def test_gloo_ends_it_before_the_last_look(self):
        """Gloo's threads then wait, as those that have forgotten a collective."""
        def look(_):
            self.gloo[1].allreduce([torch.ones(3)]).wait()
            self.work.wait()
            return True
        with unittest.mock.patch.object(socket.socket, "shutdown"), unittest.mock.patch.object(self.backend, "_forgets", look):
            self.shut_down()
        self.assertFalse(self.backend.gave_up)
        self.assertEqual([[2.0, 2.0, 2.0]], [one.tolist() for one in self.work.get_future().wait()])

    def check_late(self, has_no_addresses=False):
        """Its future mustn't be fulfilled before: Gloo would end the process."""
        looks, forgets = [], self.backend._forgets

        def look(works):
            looks.append(forgets(works))
            if len(looks) == 3:
                self.gloo[1].allreduce([torch.ones(3)]).wait()
            return looks[-1]
        self.backend.know_sockets()
        with contextlib.ExitStack() as patches:
            patches.enter_context(unittest.mock.patch.object(socket.socket, "shutdown"))
            patches.enter_context(unittest.mock.patch.object(self.backend, "_forgets", look))
            if has_no_addresses:  # as those that both ends have shut down
                patches.enter_context(unittest.mock.patch.object(socket.socket, "getpeername", side_effect=OSError))
                patches.enter_context(unittest.mock.patch.object(socket.socket, "getsockname", side_effect=OSError))
            self.shut_down()
        self.assertEqual((False, False), (any(looks), self.backend.gave_up))
        self.assertEqual([[2.0, 2.0, 2.0]], [one.tolist() for one in self.work.get_future().wait()])


class Held(unittest.TestCase):
    """Works that only C++ holds."""

    class Work(groups.PythonWork):
        def wait(self, timeout=None):
            self.asked()
            return True

    def setUp(self):
        self.group = groups._Group(0, 1, "held", PATIENCE)
        self.group.backend = unittest.mock.Mock()
        self.group.backend.run = lambda *_: self.Work()

    def test_cpp_waits_for_them(self):
        """It would wait forever for a work whose Python part is forgotten."""
        dist._broadcast_coalesced(self.group, [torch.ones(3), torch.ones(3)], 1, 0)
        self.assertEqual({}, groups._unasked)

    def test_those_of_which_nobody_asks_are_bounded(self):
        self.addCleanup(groups._unasked.clear)
        for _ in range(groups._UNASKED_MOST + 5):
            last = self.group.barrier()
        self.assertEqual(groups._UNASKED_MOST, len(groups._unasked))
        self.assertIn(id(last), groups._unasked)


if __name__ == "__main__":
    unittest.main(verbosity=2)
