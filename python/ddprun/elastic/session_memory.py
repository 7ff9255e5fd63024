"""A Session's state in the agents' memory, for the case that all ranks lose theirs at once.

The state is the same on all ranks, so one worker of each node saves it, and the newest one is right for all. A save may take this
part of the time, whatever the state's size:

    0.5 GB on CPUs: 0.1 s in a thread beside the training, and 10 ms that it waits: a save every 22 s
    the same on a GPU, where processors are idle: only the 10 ms count: a save every 2 s
"""

import json
import os
import time

from ddprun import grpc_channel
from ddprun.elastic.checkpoints import BUCKETS_KNOWN, Checkpoints, say

_PART = 0.005
_PAUSE_MIN = 1.0  # seconds
_SLOTS = 2


class SessionMemory:
    """Threads: the one that trains."""

    def __init__(self, membership, parts, every):
        """every: steps between saves; None = by what they cost; 0 = nothing is saved."""
        self._parts, self._every, self._checkpoints = parts, every, None
        self._due, self._seen = time.monotonic() + _PAUSE_MIN, 0.0
        self._on_gpu = any(parameter.is_cuda for model in parts.models for parameter in model.parameters())
        if every == 0 or membership is None or os.environ.get("LOCAL_RANK") != "0":
            return
        try:
            self._checkpoints = Checkpoints(membership.agent, _SLOTS, parts.optimizers, membership.rank, membership.size)
        except (grpc_channel.RpcError, OSError) as error:
            say(f"no checkpoints in memory: {error}")

    def note(self):
        """For agree(): this rank's place in the data, and its newest checkpoint's step and place."""
        steps = [] if self._checkpoints is None else [head.step for head in self._checkpoints.whole()]
        found = None
        if steps:
            found = (max(steps), _place(self._checkpoints.peek(max(steps))["sampler"]))
        return json.dumps((_place(self._parts.sampler.state_dict()), found)).encode()

    @staticmethod
    def agree(notes):
        """(rank with the newest checkpoint, its step), or (None, 0), where none has one, or the script has loaded a newer one."""
        notes = [json.loads(note) for note in notes]
        found = max(((one, -rank) for rank, (_, one) in enumerate(notes) if one is not None), default=None)
        if found is None or found[0][1] < max(own for own, _ in notes):
            return None, 0
        return -found[1], found[0][0]

    def load(self, step):
        return self._checkpoints.load(step, {})

    def touch_ahead(self):
        """Takes the memory that saves will need, beside the training."""
        if self._checkpoints is not None:
            self._checkpoints.touch_ahead(self._parts.state())

    def wait(self):
        """Waits for the save under way. Call it before something other than an update changes the state."""
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def after_step(self, steps, more):
        """Saves the state between two steps, if it is time. more(): a dict of what isn't the parts'."""
        if self._checkpoints is None or self._checkpoints.why_off or steps < BUCKETS_KNOWN:
            return
        if (time.monotonic() < self._due) if self._every is None else steps % self._every:
            return
        self._checkpoints.save(steps, {**self._parts.state(), **more()})
        # The last one's cost; what this one costs isn't known yet.
        cost = self._checkpoints.seconds_seen - self._seen + (0 if self._on_gpu else self._checkpoints.seconds_beside)
        self._seen = self._checkpoints.seconds_seen
        self._due = time.monotonic() + max(_PAUSE_MIN, cost / _PART)


def _place(state):
    return [state["epoch"], state["consumed"]]
