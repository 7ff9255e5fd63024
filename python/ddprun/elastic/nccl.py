"""Collectives of tensors on a GPU: a group of NCCL's in each generation (docs/decisions/0089).

NCCL differs from Gloo in three ways:

- The host only enqueues a collective, and runs ahead. A collective in an aborted group ends *without an error*, and what is queued
  behind it, such as the optimizer's step, reads nonsense. So a caller that is about to use results for good calls settle(), which
  waits for the stream and then asks whether the group was aborted. wait() does so for the program's own collectives; FSDP2's, which
  run ahead of each layer, are settled before the update. (The threads that watch for errors would end the process; four variables
  of torch's stop them.)
- abort() ends all waits, and takes half a second; it runs in a thread of its own.
- A connect can't be aborted, because there is nothing to abort yet. It ends when the sockets that it has opened are shut down, those
  that listen, too.

    backward: all-reduces are enqueued     peer lost: abort()       optimizer.step()'s hook: settle()
    ------------------------------------------------------------->  the stream is empty; aborted: PeerError, the step is broken

A group connects at its first collective of a tensor on a GPU, because until then a program may choose another GPU.
"""

import contextlib
import os
import signal
import socket
import sys
import threading

import torch
from torch._C import _distributed_c10d as c10d

from ddprun.elastic.store import PeerError

# As in worker/torch/collectives/nccl_plugin_loader.cc.
_VARIABLES = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
              "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
_ABORT_SECONDS = 20.0
_COALESCED = {"allgather_into_tensor_coalesced": "_allgather_base", "reduce_scatter_tensor_coalesced": "_reduce_scatter_base"}


def wanted():
    """Whether groups of NCCL's are renewed. Not by default before scripts/gpu_check has shown it on a GPU."""
    return os.environ.get("DDPRUN_ELASTIC_NCCL") == "1"


def missing_parts():
    """The names used here that this version of torch lacks; [] = none."""
    group = getattr(c10d, "ProcessGroupNCCL", None)
    return [f"ProcessGroupNCCL.{name}" for name in ("Options", "abort", "eager_connect_single_device") if not hasattr(group, name)]


def device_of(values):
    """The GPU of the first tensor in lists of tensors; None = there is none."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.device if value.is_cuda else None
        if isinstance(value, (list, tuple)) and value:
            return device_of(value)
    return None


def synchronize(device):
    """Waits for what this thread has enqueued."""
    torch.cuda.current_stream(device).synchronize()


def connected(store, rank, size, timeout, device):
    """A group of NCCL's whose ranks have met."""
    os.environ.update(_VARIABLES)
    options = c10d.ProcessGroupNCCL.Options()
    options._timeout = timeout
    with torch.cuda.device(device):
        group = c10d.ProcessGroupNCCL(store, rank, size, options)
        group.eager_connect_single_device(device)
    return group


class Gpu:
    """The part of a backend for tensors on a GPU. Threads: the one that trains, but shut_down() and await_end() any."""

    def __init__(self, place, over, advice, sockets):
        """place: (store, rank, size, timeout) of the group. over: the generation's Over. advice(): ends the texts of errors.
        sockets(): copies of this process' TCP sockets."""
        self._place, self._over, self._advice, self._sockets = place, over, advice, sockets
        self._inner, self._device, self._aborting = None, None, None
        self.is_settled = True  # nobody can have read nonsense
        self._lock = threading.Lock()

    def run(self, device, name, arguments, named, work_of):
        """The work of a collective. work_of(the work of NCCL's, settle)."""
        if name in _COALESCED:
            works = [self.run(device, _COALESCED[name], pair, {}, work_of) for pair in zip(*arguments[:2])]
            return works[-1] if works else None  # NCCL does them in order
        self.connect(device)
        self.is_settled = False
        work = getattr(self._inner, name)(*arguments, **named)
        return None if work is None else work_of(work, self.settle)

    def connect(self, device):
        """Meets the other ranks, once. PeerError: the generation has ended meanwhile."""
        if self._device is not None:
            return
        before, result = self._open_sockets(), []

        def attempt():
            try:
                result.append(connected(*self._place, device))
            except Exception as error:  # whatever it is, the caller raises it
                result.append(error)
            self._over.wake()
        threading.Thread(target=attempt, name="ddprun connect", daemon=True).start()
        self._over.wait(lambda over: result or over.why)
        if not result:
            for copy in self._sockets():
                with copy, contextlib.suppress(OSError):
                    if os.fstat(copy.fileno()).st_ino not in before:
                        copy.shutdown(socket.SHUT_RDWR)
        if not result or isinstance(result[0], Exception) and self._over.why:
            raise PeerError(f"the generation ended while its ranks connected: {self._over.why}")
        if isinstance(result[0], Exception):
            raise result[0]
        with self._lock:
            self._inner, self._device = result[0], device
            is_late = self._aborting is not None
        if is_late:
            self._inner.abort()

    def _open_sockets(self):
        found = set()
        for copy in self._sockets():
            with copy:
                found.add(os.fstat(copy.fileno()).st_ino)
        return found

    def settle(self):
        """Waits for the GPU. PeerError: the group was aborted, so what its collectives have given may be nonsense."""
        if self.is_settled:
            return
        synchronize(self._device)
        if self._over.why:
            raise PeerError(f"the group was aborted while the GPU worked for it: {self._over.why}{self._advice()}")
        self.is_settled = True

    def shut_down(self):
        """Has all that the GPU waits for end."""
        with self._lock:
            inner, first = self._inner, self._aborting is None
            if first:
                self._aborting = threading.Thread(target=inner.abort if inner is not None else lambda: None,
                                                  name="ddprun abort", daemon=True)
        if first:
            self._aborting.start()

    def await_end(self):
        """Waits for shut_down(). A group of NCCL's that never lets go ends this process, which is then started anew."""
        if self._aborting is None:
            return
        self._aborting.join(_ABORT_SECONDS)
        if self._aborting.is_alive():
            print(f"ddprun.elastic: NCCL hasn't aborted a group for {_ABORT_SECONDS:g} s: this process ends, and is started anew",
                  file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def release(self):
        """Destroys the group in another thread, because its destructor waits for its own."""
        with self._lock:
            held, self._inner, self._device = [self._inner], None, None
        if held[0] is not None:
            threading.Thread(target=held.clear, name="ddprun release", daemon=True).start()
