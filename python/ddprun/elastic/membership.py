"""This process' place in the job, generation by generation (docs/PROTOCOL.md, W10).

A worker that goes on in its process, a *survivor*, and one that was started in a lost one's place, a *newcomer*, meet like this:

    survivor, in a thread                    survivor, in its loop           newcomer
    AwaitGenerationEnd(1) returns
    shuts down the groups' connections  ->   the step fails
    GetAssignment(after 1): release
    ... returns generation 2            ->   Gather "hello": kept      <->   Gather "hello": new, in init_process_group
                                                                             a peer was kept: groups that stand in
                                                                             the script sets itself up
                                             its state (handover.py)    ->   a thread fetches it
                                             Gather "note"             <->   Gather "note", in Session()
                                             groups, reducer           <->   groups, reducer

The thread releases generations without the loop, so a program that is busy for minutes between two steps, with a checkpoint or
an evaluation of its own, isn't taken for one that hangs, and goes on when another worker is lost meanwhile.
"""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading

import torch.distributed as dist

from ddprun import grpc_channel
from ddprun.agent import Agent, RpcError
from ddprun.elastic.groups import Over, groups, register
from ddprun.elastic.handover import Fetch
from ddprun.elastic.set_up import SetUp
from ddprun.elastic.store import AgentStore, JobOver, PeerError

# The agent answers each call within this time, and is asked again.
_ASK_SECONDS = 600.0
_SIGNAL_SECONDS = 60.0
_KEPT, _NEW = b"kept", b"new"
_FAILED = " exited with code "  # in the agent's reason
_LIGHTNING = ("lightning", "pytorch_lightning")
# Names of sources, in errors of collectives that torch has no class for. The cause is certain when the agent reports that the
# generation is over.
_COLLECTIVES = ("gloo", "nccl")
# The agent notices the end of a process within milliseconds. One that ends by an exception takes a second or two.
_WORD_SECONDS = 60.0


class Membership:
    """The membership of a process that ddprun has started."""

    def __init__(self, agent, generation, rank, size):
        self.agent = agent
        self.generation, self.rank, self.size = generation, rank, size
        self.is_newcomer = False  # peers were kept, and this process has nothing of theirs yet
        self.why_not = lambda: ""  # asked at a generation's end, in another thread: why this process ends with it; "" = it goes on
        self.same_place = False  # this process can go on only with the same rank among as many workers
        self._is_watching = False
        self._greeted = 0  # a generation
        self._joined = 1   # the newest generation in which all have joined
        self.offers = []   # by rank, what survivors offered as they greeted each other in it; b"" = nothing
        self.fetch = None  # of the state that was offered to this process as it arrived
        self.gift = b""  # what survivors give a newcomer as it arrives; what it was given
        self._results = {}  # the same, of the set-up's collectives
        self._set_up = SetUp()

    @classmethod
    def of_environment(cls):
        """None: no ddprun has started this process."""
        agent = Agent.of_environment()
        generation = os.environ.get("DDPRUN_GENERATION", "0")
        if agent is None or not generation.isdigit() or int(generation) == 0:
            return None
        return cls(agent, int(generation), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    @property
    def over(self):
        return groups.over

    def caused(self, error):
        """Whether a RuntimeError comes from a peer's loss instead of this rank."""
        over = self.over
        is_collectives = isinstance(error, (PeerError, dist.DistError)) or any(one in str(error).lower() for one in _COLLECTIVES)
        if not over.why and is_collectives and not groups.timed_out():
            over.wait(lambda told: told.why, _WORD_SECONDS)
        return bool(over.why)

    def prepare(self, timeout):
        """Has groups made over the agent's store. timeout: of their collectives."""
        groups.over, groups.timeout = Over(), timeout
        groups.store = AgentStore(self.agent.store(self.generation), timeout)
        register()

    def arrive(self):
        """Call it before the first group is made: finds out whether there are survivors, which have set themselves up already."""
        if self.generation > 1:
            kept = [rank for rank, what in enumerate(self._hello(_NEW)) if what.startswith(_KEPT)]
            self.is_newcomer = groups.stands_in = bool(kept)
            if kept:
                self._results, self.gift, self.same_place = pickle.loads(groups.store.get(f"ddprun/gift{kept[0]}"))
        self._set_up = groups.set_up = SetUp(self._results if self.is_newcomer else None)
        if self.is_newcomer:
            self.watch()  # what it sets up alone is of use in a later generation, too
            self.fetch, self.offers = Fetch(self.offers, self.rank), []

    def watch(self, models=()):
        """Makes this process go on from now on when its generation ends, and each one that follows. The set-up is over.

        models: what is trained.
        """
        if not self.is_newcomer and groups.set_up is not None:
            groups.set_up.end(models)
            self._results, groups.set_up = groups.set_up.results, None
        if not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._await_ends, args=(groups.over, self.generation), name="ddprun generation",
                             daemon=True).start()
        groups.over.watched.wait()  # a thread may get its first turn when a hundred steps are done, and a peer is lost

    @property
    def has_greeted(self):
        """Whether this process has greeted the others in the generation, and it isn't over."""
        return self._greeted == self.generation and not self.over.why

    def greet(self, offer=b""):
        """Takes its place in the next generation if this one is over, and greets the others, once in a generation. offer: for ranks
        that lack this one's state (handover.py). PeerError: the generation has ended again, call it again. JobOver: the job is over.
        """
        if self.over.why:
            self._take_place()
        self.watch()
        self._hello(_KEPT, offer)

    def rejoin(self, note):
        """Greets the others, exchanges notes, and has the groups made anew.

        note: bytes. Returns all ranks' notes, by rank. PeerError: the generation has ended again, call rejoin() again. JobOver: the
        job is over.
        """
        self.greet()
        names = [f"ddprun/note{rank}" for rank in range(self.size)]
        notes = groups.store.gather(names[self.rank], note, names)
        groups.stands_in, groups.set_up = False, None
        groups.reform(self.rank, self.size)
        self.is_newcomer, self._joined = False, self.generation
        return notes

    def _take_place(self):
        self.over.wait(lambda over: over.place is not None and over.has_ended or over.fatal)
        if self.over.fatal:
            # The agent's signal ends this process, and the agent reports why: a traceback would only distract.
            self.over.wait(lambda over: False, _SIGNAL_SECONDS)
            raise JobOver(f"the job doesn't go on with this process: {self.over.why}")
        place = self.over.place
        place.export()
        self.generation, self.rank, self.size = place.generation, place.rank, place.world_size
        groups.over = self.over.next
        groups.store.move_to(self.agent.store(place.generation))

    def _hello(self, what, offer=b""):
        if self.generation in (1, self._greeted):
            return []
        self._greeted = self.generation
        if what == _KEPT:
            gift = pickle.dumps((self._results, self.gift, self.same_place))
            groups.store.set(f"ddprun/gift{self.rank}", gift)  # before the greeting, so that newcomers find it
        names = [f"ddprun/hello{rank}" for rank in range(self.size)]
        told = groups.store.gather(names[self.rank], what + offer, names)
        self.offers = [one[len(_KEPT):] if one.startswith(_KEPT) else b"" for one in told]
        return told

    def _why_nobody_joins(self, generation, reason):
        """A worker that ends with an error before it has joined would do so again beside the same peers, until no restart is left."""
        failed = _FAILED in reason and self._joined < generation
        return f"{reason}, before it joined the others" if failed else ""

    def _await_ends(self, over, generation):
        while over is not None:
            self._await_end(over, generation)
            generation, over = over.place.generation if over.next else 0, over.next

    def _say_on_node(self, text, generation):
        """Prints a line for people, once on a node and in a generation, whichever of its workers are lost."""
        try:
            os.close(os.open(f"{self.agent.path}.{generation}", os.O_CREAT | os.O_EXCL, 0o600))  # in a folder of the agent's
        except FileExistsError:
            return  # another worker has said it
        except OSError:
            pass
        _print(text)

    def _await_end(self, over, generation):
        try:
            reason = self.agent.await_generation_end(generation, over.watched.set, self.same_place)
            why = self._set_up.why or self.why_not() or self._why_nobody_joins(generation, reason)
            over.tell(reason, fatal=bool(why))
            if why:
                self._say_on_node(f"{why}: all processes are restarted", generation)
                _terminate()
                return
            while over.place is None:
                try:
                    over.follow(self.agent.assignment(generation, _ASK_SECONDS), Over())
                except RpcError as error:
                    if error.code != grpc_channel.DEADLINE_EXCEEDED:
                        raise
        except Exception as error:
            # The job is over, this process is being stopped already, or the agent is gone, which ends its workers. Any other
            # error must reach the thread that waits for this one as well.
            over.tell(str(error), fatal=True)
        finally:
            over.watched.set()


def _terminate():
    """Ends this process as the agent ends workers that don't go on. Lightning's handler of the signal would wait for a rank that is
    lost. Threads: any."""
    if type(signal.getsignal(signal.SIGTERM)).__module__.split(".")[0] in _LIGHTNING:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        ctypes.pythonapi.PyOS_setsig(int(signal.SIGTERM), None)  # signal.signal() is for the main thread alone
    os.kill(os.getpid(), signal.SIGTERM)


def say_recovery(membership, recovery):
    """Says, once for the job, that training goes on. All ranks call it: rank 0 may be new, and know nothing of the interruption."""
    keys, seconds = [f"ddprun/seconds{rank}" for rank in range(membership.size)], [recovery.seconds]
    with contextlib.suppress(RuntimeError):  # the generation has ended
        groups.store.set(keys[membership.rank], str(recovery.seconds))
        if membership.rank == 0:
            seconds += map(float, groups.store.multi_get(keys))
    given = ", with a peer's state" if recovery.healed else ""
    say(f"training goes on after step {recovery.step}, {max(seconds):.1f} s after the interruption{given}")


def say(text):
    """Prints a line for people, once for the job."""
    if os.environ.get("RANK", "0") == "0":
        _print(text)


def _print(text):
    print(f"ddprun.elastic: {text}", file=sys.stderr, flush=True)
