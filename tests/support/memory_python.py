"""A script whose processes are restarted, with its state in the agent's memory: memory_python.py JOURNAL STEPS EVERY [FORM]...

Each rank appends a line of JSON for its start, for each step, and at the end one with a digest of its state. Forms: fsdp (shards
instead of DistributedDataParallel); blind (the slots' numbers are ignored: the twin); unlike (the layout of DDP's buckets isn't
restored: another twin); alone (no copies on other nodes: a third one); scaled (each rank has parameters of its own in DDP).
MEMORY_STOPS="RANK:STEP:PIECE,...": that rank stops for good within the save of that step, when so many of its tensors are copied,
and says so; once for each. MEMORY_STOPS_BY=LOCAL_RANK: of that local rank. PIECE -1: within the sending of that step's copy.
"""

import hashlib
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ddprun import elastic  # noqa: E402
from ddprun.elastic import memory as memory_module  # noqa: E402
from ddprun.elastic import slots  # noqa: E402

BATCH, PER_EPOCH = 12, 20


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.values = torch.randn(BATCH * PER_EPOCH, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return index, self.values[index]


def network():
    return nn.Sequential(nn.Linear(16, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))


class Training:
    def __init__(self, journal, steps, every, forms):
        self.steps, self.forms = steps, set(forms)
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if "WORLD_SIZE" in os.environ:
            dist.init_process_group("gloo")
        torch.manual_seed(3)
        self.model = self.wrapped(network())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 500)
        data = Data()
        self.sampler = elastic.ElasticSampler(data, global_batch=BATCH, seed=1)
        # A generator of its own: the default ones would be advanced by each iteration that begins.
        self.loader = torch.utils.data.DataLoader(data, batch_sampler=self.sampler, generator=torch.Generator().manual_seed(5))
        torch.manual_seed(11 + self.rank)
        random.seed(13 + self.rank)
        self.memory = elastic.MemoryCheckpoint(every=every, copies="alone" not in self.forms, model=self.model,
                                               optimizer=self.optimizer, scheduler=self.scheduler, sampler=self.sampler)
        checkpoints = self.memory._checkpoints
        all_slots = checkpoints.slots._slots if checkpoints is not None else []
        if checkpoints is not None and checkpoints.replicas is not None:
            all_slots = all_slots + [slot for group in checkpoints.replicas._groups.values() for slot in group._slots]
        torn = sum(slot.size > 0 and slot.head() is None for slot in all_slots)
        begin = time.perf_counter()
        self.step = self.memory.restore()
        self.write("start", step=self.step, torn=torn, seconds=time.perf_counter() - begin)

    def wrapped(self, model):
        if "fsdp" in self.forms:
            from torch.distributed.fsdp import fully_shard
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer)
            return fully_shard(model)
        return DistributedDataParallel(model, bucket_cap_mb=0.3) if dist.is_initialized() else model

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": self.rank,
                "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def train(self, inputs):
        loss = self.model(inputs).pow(2).mean() + random.random() * 1e-3
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if "scaled" in self.forms:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.mul_(1 - 1e-3 * self.rank)
        self.scheduler.step()
        return loss.item()

    def run(self):
        while self.step < self.steps:
            for indices, inputs in self.loader:
                loss = self.train(inputs)
                self.sampler.commit()
                self.step += 1
                self.memory.save(self.step)
                self.write("step", step=self.step, loss=loss.hex(), samples=indices.tolist())
                if self.step == self.steps:
                    break
        self.write("end", digest=self.digest(), step=self.step)

    def digest(self):
        whole = hashlib.sha256()
        for value in self.model.state_dict().values():
            whole.update(getattr(value, "_local_tensor", value).numpy().tobytes())
        for group in self.optimizer.state_dict()["state"].values():
            for value in group.values():
                whole.update(getattr(value, "_local_tensor", value).numpy().tobytes())
        numbers = [random.random(), torch.rand(1).item()]
        whole.update(repr([self.scheduler.state_dict(), self.sampler.state_dict(), numbers]).encode())
        return whole.hexdigest()


def stop_within_saves(training, stops):
    """stops: [(step, piece)] at which this process stops copying for good."""
    write, copy = slots.Slot.write, slots._copy

    def watched(self, head, text, pieces, is_right):
        left = [piece for step, piece in stops if step == head.step]
        count = iter(range(len(pieces)))

        def stopping(*arguments):
            number = next(count)
            if number in left:
                training.write("stops", step=head.step, piece=number)
                threading.Event().wait()
            return copy(*arguments)
        slots._copy = stopping if left else copy
        return write(self, head, text, pieces, is_right)
    slots.Slot.write = watched
    send = slots.Slot.send

    def stopping_half_way(self, connection, begin, size):
        if (self.head().step, -1) not in stops:
            return send(self, connection, begin, size)
        send(self, connection, begin, size // 2)
        training.write("stops", step=self.head().step, piece=-1)
        return threading.Event().wait()
    slots.Slot.send = stopping_half_way


def main():
    torch.set_num_threads(1)
    journal, steps, every, *forms = sys.argv[1:]
    if "blind" in forms:
        slots.is_whole = lambda begun, done: True
    if "unlike" in forms:
        memory_module.reducer.layout_of = lambda model: None
    training = Training(journal, int(steps), int(every), forms)
    given = [[int(number) for number in one.split(":")] for one in os.environ.get("MEMORY_STOPS", "").split(",") if one]
    generation = int(os.environ.get("DDPRUN_GENERATION", "0"))
    own = int(os.environ.get(os.environ.get("MEMORY_STOPS_BY", "RANK"), "0"))
    # The first for the first generation, and so on.
    stop_within_saves(training, [(step, piece) for number, (rank, step, piece) in enumerate(given, 1)
                                 if rank == own and number == generation])
    training.run()


if __name__ == "__main__":
    main()
