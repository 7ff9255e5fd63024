"""A loop of Python's that trains through failures: elastic_python.py JOURNAL STEPS [FORM]...

Each rank appends a line of JSON for each step that it has done, and at the end one with a digest of all that a Session keeps.
Forms: accumulate, scaler, gan, closure, workers (of the DataLoader), with (session.step()), lonely (no init_process_group of
ddprun's), narrow (a global batch that divides unevenly), evaluate (a collective of the program's own after each epoch), guarded
(in session.step()), halves (with `with`: one in a group of some ranks), memory (a checkpoint in the agent's memory every 5
steps), forgets (none), bf16 (autocast), epochs (session.epochs()), range (in its place, with a count of steps), large (300 MB of
state), sgd (with momentum, in place of AdamW), early (a line when a new worker has a state before it has a model; then it waits
for the FIFO JOURNAL.gate, if there is one), dying (the first rank 2 waits for the FIFO while it gives its state, and ends
itself), stillborn (rank 1 of the second generation ends with an error in its set-up), unreachable (nobody can fetch a state),
counts (a line with the process' threads, descriptors and memory after each recovery), nccl (fake_nccl.py's groups), gpu (the
training is on one, over NCCL), rests (the fifth step waits until the agent has closed the connections that nobody uses, which
takes it a minute), shared (a set-up in which ranks exchange what a new worker can't find out), dict (batches that the body takes
apart), many (three updates a batch), loads (each process loads a checkpoint of the beginning after it has made the Session).
"""

import atexit
import contextlib
import copy
import datetime
import hashlib
import json
import os
import random
import select
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

LINGERS = os.environ.get("ELASTIC_LINGERS")  # a FIFO for which a process that raises an error waits before it ends
DELAY = float(os.environ.get("ELASTIC_DELAY", "0"))  # seconds that a step computes for

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ddprun import elastic  # noqa: E402
from ddprun.elastic import handover  # noqa: E402
from marked_phase import marked_phase  # noqa: E402

try:
    from numpy.random import random as NUMPY_RANDOM
except ImportError:
    NUMPY_RANDOM = random.random

BATCH, PER_EPOCH = 12, 40


class Data(torch.utils.data.Dataset):
    def __init__(self, draws):
        """draws: each reading of a sample differs by random numbers."""
        self.draws = draws
        self.values = torch.randn(BATCH * PER_EPOCH, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        noise = 1e-3 * (torch.rand(16) + random.random() + NUMPY_RANDOM()) if self.draws else 0
        return index, self.values[index] + noise


def in_dict(samples):
    indices, inputs = torch.utils.data.default_collate(samples)
    return {"indices": indices, "inputs": inputs}


def network(outputs, is_large=False):
    if is_large:  # 25 million parameters, three times with AdamW's state
        return nn.Sequential(nn.Linear(16, 5000), nn.ReLU(), nn.Linear(5000, 5000), nn.ReLU(), nn.Linear(5000, outputs))
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(),
                         nn.Linear(32, outputs))


class Average:
    """An average of the parameters; the loop's body updates it."""

    def __init__(self, model):
        self.model, self.values = model, [parameter.detach().clone() for parameter in model.parameters()]

    def update(self):
        for value, parameter in zip(self.values, self.model.parameters()):
            value.lerp_(parameter.detach(), 0.1)

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        for value, given in zip(self.values, state["values"]):
            value.copy_(given)


def resources():
    """What a process has: a leak makes these grow."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        memory = next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd")), "memory_kb": memory}


class Training:
    def __init__(self, journal, steps, forms):
        self.steps, self.forms = steps, set(forms)
        torch.manual_seed(7 + int(os.environ["RANK"]))
        self.change_handover(journal + ".gate")
        if "nccl" in forms:
            import fake_nccl
            fake_nccl.install()
        self.device = "cuda" if "gpu" in forms else "cpu"
        (dist if "lonely" in forms else elastic).init_process_group("nccl" if self.forms & {"nccl", "gpu"} else "gloo", **(
            {"timeout": datetime.timedelta(seconds=2)} if "stalls" in forms else {}))
        self.shared = self.exchange() if "shared" in forms else None
        if "early" in forms and elastic._membership.fetch is not None:
            self.report_state(journal)
        if "stillborn" in forms and (os.environ["RANK"], os.environ["DDPRUN_GENERATION"]) == ("1", "2"):
            raise ValueError("nothing to load")
        self.halves = [dist.new_group(ranks) for ranks in ([0, 1], [2])] if "halves" in forms else []
        torch.manual_seed(3)
        self.model = self.wrapped(network(1, "large" in forms))
        if "shared" in forms:
            for parameter in [*self.model.parameters()] * 200:  # more than is kept of a set-up
                dist.broadcast(parameter.data, src=0)
        self.critic = self.wrapped(network(16)) if "gan" in forms else None
        models = [one for one in (self.model, self.critic) if one is not None]
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3, momentum=0.9, nesterov=True) if "sgd" in forms
                           else torch.optim.AdamW(one.parameters(), lr=1e-3) for one in models]
        self.schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(one, 500) for one in self.optimizers]
        self.scaler = torch.amp.GradScaler(self.device, init_scale=2.0**120, growth_interval=5) if "scaler" in forms else None
        self.average = Average(self.model.module[0] if "large" in forms else self.model)
        data = Data("workers" not in forms)
        self.sampler = elastic.ElasticSampler(data, global_batch=BATCH - 1 if "narrow" in forms else BATCH, seed=1)
        self.loader = torch.utils.data.DataLoader(data, batch_sampler=self.sampler, num_workers=2 if "workers" in forms else 0,
                                                  collate_fn=in_dict if "dict" in forms else None)
        beginning = ([copy.deepcopy(one.state_dict()) for one in (self.model, *self.optimizers)], self.sampler.state_dict())
        torch.manual_seed(11 + int(os.environ["RANK"]))
        every = 5 if "memory" in forms else 0 if "forgets" in forms else None
        self.session = elastic.Session(models, self.optimizers, self.schedulers, self.scaler, sampler=self.sampler,
                                       extra={"average": self.average}, memory_every=every)
        if "loads" in forms:
            for one, state in zip((self.model, *self.optimizers), beginning[0]):
                one.load_state_dict(state)
            self.sampler.load_state_dict(beginning[1])
        self.models, self.counted = models, 0
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.write("ready", step=self.session.step_number, shared=self.shared)

    @staticmethod
    def exchange():
        own = [f"run {random.random()}", random.randrange(100)] if dist.get_rank() == 0 else [None, None]
        if os.environ["DDPRUN_GENERATION"] == "1":
            dist.barrier()  # as around a download that a later process doesn't repeat
        dist.broadcast_object_list(own, src=0)
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, f"host {random.random()}")
        total = torch.tensor([random.random()])
        dist.all_reduce(total)
        group = dist.new_group(backend="gloo")
        group.monitored_barrier(datetime.timedelta(days=10000))
        dist.monitored_barrier(group)
        dist.destroy_process_group(group)
        return [own, names, total.item()]

    @staticmethod
    def report_state(journal):
        fetch = elastic._membership.fetch
        line = {"t": time.monotonic(), "event": "early", "position": fetch.result() and fetch.position}
        with open(journal, "a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")
        if os.path.exists(journal + ".gate"):
            with open(journal + ".gate", "rb") as gate:
                gate.read()

    def change_handover(self, gate):
        if "dying" in self.forms and os.environ["RANK"] == "2" and os.environ["DDPRUN_GENERATION"] == "1":
            tensors = iter(range(5))
            give = handover.bytes_of

            def some(tensor):
                if next(tensors, None) is None:
                    with open(gate, "rb") as opened:
                        opened.read()
                    os.kill(os.getpid(), signal.SIGKILL)
                return give(tensor)
            handover.bytes_of = some
        if "unreachable" in self.forms:
            handover.connected = lambda *_: handover.socket.create_connection(("127.0.0.1", 1), 1)

    def wrapped(self, module):
        return DistributedDataParallel(module.to(self.device))

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": dist.get_rank(),
                "world": dist.get_world_size(), "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def update(self, optimizer, loss):
        if self.scaler is None:
            loss.backward()
            optimizer.step()
            optimizer.param_groups[0]["params"][0].grad.sum()  # a script may log it
        else:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(optimizer)
            self.scaler.update()
        optimizer.zero_grad()

    def body(self, number, indices, inputs):
        before = self.session.step_number
        if DELAY:
            threading.Event().wait(DELAY)
        if "rests" in self.forms and before == 4 and os.environ.get("DDPRUN_GENERATION") == "1":
            self.rest()
        inputs = inputs.to(self.device)
        with torch.autocast(self.device, torch.bfloat16, enabled="bf16" in self.forms):
            loss = self.model(inputs).float().pow(2).mean() + random.random() * 1e-3
        if "accumulate" in self.forms and number % 2 == 0:
            with self.model.no_sync():
                loss.backward()
            return
        if "closure" in self.forms:
            self.closure(inputs)
        else:
            self.update(self.optimizers[0], loss)
        for number in range(2 if "many" in self.forms else 0):
            place = f"{os.environ.get('DDPRUN_GENERATION')}:{dist.get_rank()}:{before}"
            if number and os.environ.get("ELASTIC_DIES_BETWEEN") == place:
                os.kill(os.getpid(), signal.SIGKILL)
            self.update(self.optimizers[0], self.model(inputs).pow(2).mean())
        if self.critic is not None:
            self.update(self.optimizers[1], (self.critic(inputs) - inputs).pow(2).mean() + self.model(inputs).detach().mean())
        for scheduler in self.schedulers:
            scheduler.step()
        self.average.update()
        if "with" in self.forms:
            total = torch.ones(1, device=self.device)
            dist.all_reduce(total)
            assert total.item() == dist.get_world_size()
        if self.halves:
            half = self.halves[dist.get_rank() // 2]
            total = torch.ones(1, device=self.device)
            dist.all_reduce(total, group=half)
            assert total.item() == dist.get_world_size(half)
        place = f"{os.environ.get('DDPRUN_GENERATION')}:{dist.get_rank()}:{self.session.step_number}"
        if os.environ.get("ELASTIC_RAISES") == place:
            if LINGERS:
                atexit.register(lambda: os.close(os.open(LINGERS, os.O_RDONLY)))
            raise ValueError(f"step {self.session.step_number}")
        if "counts" in self.forms and len(self.session.recoveries) > self.counted:
            self.counted = len(self.session.recoveries)
            self.write("resources", recoveries=self.counted, **resources())
        if self.session.step_number > before:
            self.write("step", step=self.session.step_number, loss=loss.item().hex(), samples=indices.tolist(),
                       number=self.session.batch_number, phase=marked_phase())

    def rest(self):
        elastic._membership.agent.assignment(0, 5)  # over a connection that nobody uses afterwards
        left = {channel._socket.fileno(): channel for channel in elastic._membership.agent._idle}
        hangs_up = select.poll()
        for descriptor in left:
            hangs_up.register(descriptor, select.POLLRDHUP)
        while left:
            for descriptor, _ in hangs_up.poll():
                hangs_up.unregister(descriptor)
                del left[descriptor]
        self.write("rested")

    def closure(self, inputs):
        def closure():
            self.optimizers[0].zero_grad()
            loss = self.model(inputs).pow(2).mean()
            loss.backward()
            return loss
        self.optimizers[0].step(closure)

    def epochs(self):
        if "range" in self.forms:
            yield from range(self.steps // PER_EPOCH)
        elif "epochs" in self.forms:
            yield from self.session.epochs(self.steps // PER_EPOCH)
        else:
            while self.session.step_number < self.steps:
                yield None

    def run(self):
        step = 0 if "range" in self.forms else None
        for epoch in self.epochs():
            assert epoch == self.sampler.epoch or "epochs" not in self.forms
            for number, batch in enumerate(self.session.batches(self.loader)):
                indices, inputs = (batch.pop("indices"), batch.pop("inputs")) if "dict" in self.forms else batch
                with self.session.step() if "with" in self.forms else contextlib.nullcontext():
                    self.body(number, indices, inputs)
                step = step if step is None else step + 1
                if self.session.step_number == self.steps:
                    break
            if "evaluate" in self.forms:
                with self.session.step() if "guarded" in self.forms else contextlib.nullcontext():
                    self.evaluate()
        self.write("end", digest=self.digest(), step=self.session.step_number,
                   recoveries=[one.seconds for one in self.session.recoveries])
        dist.barrier()

    def evaluate(self):
        if os.environ.get("ELASTIC_STOPS") == f"{os.environ.get('DDPRUN_GENERATION')}:{self.session.step_number}":
            self.session._memory.wait()
            self.write("stops")
            threading.Event().wait()
        place = f"{os.environ.get('DDPRUN_GENERATION')}:{dist.get_rank()}:{self.session.step_number}"
        if os.environ.get("ELASTIC_DIES") == place:
            os.kill(os.getpid(), signal.SIGKILL)
        self.model.eval()
        with torch.no_grad():
            total = self.model(torch.ones(4, 16, device=self.device)).mean()
        self.model.train()
        dist.all_reduce(total)
        self.write("evaluation", step=self.session.step_number, value=total.item().hex())

    def digest(self):
        whole = hashlib.sha256()
        for model in self.models:
            for value in model.module.state_dict().values():
                whole.update(value.cpu().numpy().tobytes())
        for optimizer in self.optimizers:
            for group in optimizer.state_dict()["state"].values():
                for value in group.values():
                    whole.update(value.cpu().numpy().tobytes())
        for value in self.average.values:
            whole.update(value.cpu().numpy().tobytes())
        states = [one.state_dict() for one in (*self.schedulers, *([self.scaler] if self.scaler else []))]
        whole.update(repr([states, self.sampler.state_dict()]).encode())
        return whole.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    Training(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).run()
