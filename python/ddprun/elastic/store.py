"""The agent's store of a generation as a store of torch's."""

from datetime import timedelta

import torch.distributed as dist

from ddprun import grpc_channel


class PeerError(RuntimeError):
    """A peer is lost, or the generation is over: not this rank's fault."""


class JobOver(Exception):
    """The job is over, or goes on without this process. Not a RuntimeError: nothing is tried again."""


class AgentStore(dist.Store):
    """A dist.Store over the agent's unix socket.

    It has no TCP connection of its own, and so none of TCPStore's reverse look-ups of names, which take 5 s where a resolver does
    not answer. One object stays for the whole process: move_to() puts the next generation's store under it.
    """

    def __init__(self, store, timeout=timedelta(minutes=30)):
        """store: an agent.Store."""
        super().__init__()
        self._store = store
        self._seconds = timeout.total_seconds()

    def move_to(self, store):
        self._store = store

    def set(self, key, value):
        self._checked(self._store.set, key, value if isinstance(value, bytes) else value.encode())

    def get(self, key):
        return self.multi_get([key])[0]

    def multi_get(self, keys):
        return self._checked(self._store.gather, list(keys), self._seconds)

    def multi_set(self, keys, values):
        for key, value in zip(keys, values):
            self.set(key, value)

    def gather(self, key, value, keys):
        """Sets a key, and waits for those of all; their values."""
        return self._checked(self._store.gather, keys, self._seconds, key, value)

    def add(self, key, amount):
        return self._checked(self._store.add, key, amount)

    def append(self, key, value):
        more = value if isinstance(value, bytes) else value.encode()
        before = b""
        while True:
            now = self._checked(self._store.compare_set, key, before, before + more)
            if now == before + more:
                return
            before = now

    def check(self, keys):
        return self._checked(self._store.check, list(keys))

    def wait(self, keys, timeout=None):
        self._checked(self._store.wait, list(keys), self._seconds if timeout is None else timeout.total_seconds())

    def compare_set(self, key, expected, desired):
        return self._checked(self._store.compare_set, key, expected, desired)

    def delete_key(self, key):
        return self._checked(self._store.delete, key)

    def num_keys(self):
        return self._checked(self._store.count)

    def has_extended_api(self):
        return True

    def set_timeout(self, timeout):
        self._seconds = timeout.total_seconds()

    def clone(self):
        return self

    @staticmethod
    def _checked(call, *arguments):
        try:
            return call(*arguments)
        except grpc_channel.RpcError as error:
            if error.code in (grpc_channel.ABORTED, grpc_channel.UNAVAILABLE, grpc_channel.CANCELLED):
                raise PeerError(error.text) from None
            raise dist.DistStoreError(error.text) from None
