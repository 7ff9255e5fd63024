"""A loop over a model of fully_shard() that trains through failures: elastic_fsdp.py JOURNAL STEPS EVERY [FORM]...

Each rank appends a line of JSON for each step that it has done, and at the end one with a digest of its part of all that a
Session keeps. Forms: clip (the norm of all gradients), accumulate (two batches a step, the first without a sum), halves (a
mesh of two dimensions: copies of shards), bf16 (mixed precision), evaluate (a pass after each epoch, in session.step()),
average (an average of the parameters, in shards), workers (of the DataLoader), parts (lines with this rank's part of the
state, at the beginning and with each checkpoint), bare (no session.step()), lacking (torch lacks a name), compiled (layers),
lonely (torch's own group), still (no dropout), idle (clean() does nothing: the twin), nccl (fake_nccl.py's groups), gpu (the
training is on one, over NCCL), strict (the body raises an error of its own if a loss isn't finite).
FSDP_ENDS="GENERATION:RANK:STEP:WHERE,...": that rank ends in that step: before it, in its forward or backward pass, or after the
update.
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

from ddprun import elastic  # noqa: E402
from ddprun.elastic import shards  # noqa: E402
from elastic_python import BATCH, Data  # noqa: E402

ENDS = [one.split(":") for one in os.environ.get("FSDP_ENDS", "").split(",") if one]


def network(norm=nn.BatchNorm1d, dropout=0.1):
    """Of sizes that divide unevenly."""
    layers = [nn.Sequential(nn.Linear(size, 33), nn.ReLU(), nn.Dropout(dropout)) for size in (16, 33, 33)]
    return nn.Sequential(*layers, norm(33), nn.Linear(33, 1))


class Average:
    """An average of the parameters; the loop's body updates it."""

    def __init__(self, model):
        self.model, self.values = model, {name: value.detach().clone() for name, value in model.named_parameters()}

    def update(self):
        for name, parameter in self.model.named_parameters():
            self.values[name].lerp_(parameter.detach(), 0.1)

    def state_dict(self):
        return self.values

    def load_state_dict(self, state):
        for name, value in state.items():
            self.values[name].copy_(value)


class Training:
    def __init__(self, journal, steps, every, forms):
        self.steps, self.forms = steps, set(forms)
        torch.manual_seed(7 + int(os.environ["RANK"]))
        if "nccl" in forms:
            import fake_nccl
            fake_nccl.install()
        self.device = "cuda" if "gpu" in forms else "cpu"
        (dist if "lonely" in forms else elastic).init_process_group("nccl" if self.forms & {"nccl", "gpu"} else "gloo")
        torch.manual_seed(3)
        model = network(nn.LayerNorm if "bf16" in forms else nn.BatchNorm1d, 0 if "still" in forms else 0.1)
        self.model = self.sharded(model.to(self.device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 500)
        self.average = Average(self.model)
        data = Data("still" not in forms)
        self.sampler = elastic.ElasticSampler(data, global_batch=BATCH, seed=1)
        self.loader = torch.utils.data.DataLoader(data, batch_sampler=self.sampler, num_workers=2 if "workers" in forms else 0)
        torch.manual_seed(11 + int(os.environ["RANK"]))
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.session = elastic.Session(self.model, self.optimizer, self.scheduler, sampler=self.sampler, memory_every=every,
                                       extra={"average": self.average} if "average" in forms else None)
        self.write("ready", step=self.session.step_number)
        self.every = every
        self.write_parts()

    def write_parts(self):
        if "parts" not in self.forms or self.session.step_number % self.every:
            return
        state, momenta = self.model.state_dict(), self.optimizer.state_dict()["state"]
        own = {name: value for name, value in state.items() if hasattr(value, "_local_tensor")}
        own.update({f"{number} {name}": values[name] for number, values in momenta.items() for name in ("exp_avg", "exp_avg_sq")})
        own.update({f"average {name}": value for name, value in self.average.values.items() if "average" in self.forms})
        self.write("parts", step=self.session.step_number,
                   parts={name: value._local_tensor.numpy().tobytes().hex() for name, value in own.items()})

    def sharded(self, model):
        options = {}
        if "halves" in self.forms:
            options["mesh"] = init_device_mesh(self.device, (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "shards"))
        if "bf16" in self.forms:
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for number in range(3):
            if "compiled" in self.forms:
                model[number].compile(backend="eager")
            fully_shard(model[number], **options)
        return fully_shard(model, **options)

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": dist.get_rank(),
                "world": dist.get_world_size(), "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def ends(self, where):
        step = self.session.step_number + (where != "after")
        if [os.environ.get("DDPRUN_GENERATION"), str(dist.get_rank()), str(step), where] in ENDS:
            os.kill(os.getpid(), signal.SIGKILL)

    def body(self, number, indices, inputs):
        before = self.session.step_number
        self.ends("before")
        is_last = "accumulate" not in self.forms or number % 2 == 1
        self.model.set_requires_gradient_sync(is_last)
        loss = self.model(inputs.to(self.device)).float().pow(2).mean()
        if "strict" in self.forms and not loss.isfinite():
            raise ValueError(f"the loss is {loss.item()}")
        loss.backward()
        if not is_last:
            return
        if "clip" in self.forms:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update()
        self.ends("after")
        if self.session.step_number > before:
            self.write("step", step=self.session.step_number, loss=loss.item().hex(), samples=indices.tolist())
            self.write_parts()

    def watch_passes(self):
        """Ends the process within a pass."""
        self.model[1].register_forward_hook(lambda *_: self.ends("forward"))

        def backward(*_):
            self.ends("backward")
        self.model[1].register_full_backward_hook(backward)

    def run(self):
        self.watch_passes()
        while self.session.step_number < self.steps:
            for number, (indices, inputs) in enumerate(self.session.batches(self.loader)):
                with contextlib.nullcontext() if "bare" in self.forms else self.session.step():
                    self.body(number, indices, inputs)
                if self.session.step_number == self.steps:
                    break
            if "evaluate" in self.forms:
                with self.session.step():
                    self.evaluate()
        self.write("end", digest=self.digest(), step=self.session.step_number, recoveries=len(self.session.recoveries))
        dist.barrier()

    def evaluate(self):
        self.ends("evaluate")
        self.model.eval()
        try:
            with torch.no_grad():
                total = self.model(torch.ones(4, 16, device=self.device)).mean()
            dist.all_reduce(total)
        finally:
            self.model.train()
        self.write("evaluation", step=self.session.step_number, value=total.item().hex())

    def digest(self):
        whole = hashlib.sha256()
        states = [self.model.state_dict(), *self.optimizer.state_dict()["state"].values()]
        for state in [*states, *([self.average.values] if "average" in self.forms else [])]:
            for value in state.values():
                whole.update(getattr(value, "_local_tensor", value).cpu().numpy().tobytes())
        whole.update(repr([self.scheduler.state_dict(), self.sampler.state_dict(), self.session.step_number]).encode())
        return whole.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    given, count, interval, *words = sys.argv[1:]
    if "lacking" in words:
        shards._GROUP += ("_no_such_name",)
    if "idle" in words:
        shards.clean = lambda model: None
    Training(given, int(count), int(interval), words).run()
