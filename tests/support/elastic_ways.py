"""Ways to use DistributedDataParallel in a loop that trains through failures: elastic_ways.py JOURNAL STEPS [FORM]...

It has the forms of elastic_python.py, and more: views (gradient_as_bucket_view), static (static_graph), unused (a part of the
model has no gradients in some steps), hook (a communication hook), stateful (PowerSGD's), inner (torch.compile inside of
DistributedDataParallel), outer (around it), join (its join()), neighbours (sends and receives between ranks, in the loop's
body), synced (a model with a collective of its own, in its forward and backward pass), batchnorm (SyncBatchNorm, with no
session.step()), replaced (buffers that each pass replaces by other tensors), lazy (buffers that the first pass makes),
momentum (parameters that no optimizer updates follow others in each pass), entangled (as a GAN, with `gan`: one model's pass
ends after the other model's update), scaled (a buffer that passes change and read), rate (a learning rate by the loop's own
count), again (a second Session after the first), renewed (the loop makes its optimizer anew), stalls (rank 1, in the second
step), late (rank 1 is killed in the evaluation after the last step, once), between (in one before), last (after the last step
of the first epoch), heirs (rank 1 is killed in step 12; its successor kills the others before it makes its Session).
"""

import contextlib
import copy
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: E402
from torch.distributed.nn.functional import all_reduce  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from elastic_python import Training, elastic  # noqa: E402


class Unused(nn.Module):
    """Leaves out a part of itself in each third step, on all ranks."""

    def __init__(self, module):
        super().__init__()
        self.module, self.part, self.leaves_out = module, nn.Linear(16, 1), False

    def forward(self, inputs):
        return self.module(inputs) + (0 if self.leaves_out else self.part(inputs))


class Synced(nn.Module):
    """As SyncBatchNorm, which torch has for GPUs alone."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        values = self.module(inputs)
        return values - all_reduce(values.mean(0)) / dist.get_world_size()


class Replaced(nn.Module):
    """Has a mean of the inputs, which is a new tensor after each pass; state_dict() leaves out their number."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("number", torch.zeros(1), persistent=False)

    def forward(self, inputs):
        self.number = self.number + 1
        self.mean = self.mean + (inputs.detach().mean(0) - self.mean) / self.number
        return self.module(inputs - self.mean)


class Lazy(nn.Module):
    """Makes its buffers in its first pass; state_dict() leaves out the second one."""

    def __init__(self, module):
        super().__init__()
        self.module, self.scale = module, None
        self.register_buffer("first", None)

    def forward(self, inputs):
        if self.first is None:
            self.first = inputs.detach().mean(0)
        if self.scale is None:
            del self.scale
            self.register_buffer("scale", inputs.detach().abs().mean(0), persistent=False)
        return self.module((inputs - self.first) / (self.scale + 1))


class Momentum(nn.Module):
    """Has a copy of its first layer, which follows it."""

    def __init__(self, module):
        super().__init__()
        self.module, self.slow = module, copy.deepcopy(module[0]).requires_grad_(False)

    def forward(self, inputs):
        for slow, fast in zip(self.slow.parameters(), self.module[0].parameters()):
            slow.data.lerp_(fast.data, 0.1)
        return self.module(inputs) + self.slow(inputs).mean()


class Scaled(nn.Module):
    """Has a buffer that a forward pass changes, and that the backward pass reads."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.register_buffer("scale", torch.ones(1))

    def forward(self, inputs):
        values = self.module(inputs)
        self.scale.lerp_(values.detach().abs().mean(), 0.1)
        return values * self.scale


class Ways(Training):
    def wrapped(self, module):
        if "heirs" in self.forms and elastic._membership.is_newcomer and os.environ["DDPRUN_GENERATION"] == "2":
            with open(sys.argv[1], encoding="utf-8") as lines:
                for pid in {line["pid"] for line in map(json.loads, lines) if line["rank"] != dist.get_rank()}:
                    os.kill(pid, signal.SIGKILL)
        if "unused" in self.forms:
            module = Unused(module)
        if "synced" in self.forms:
            module = Synced(module)
        if "scaled" in self.forms:
            module = Scaled(module)
        if "momentum" in self.forms:
            module = Momentum(module)
        if "replaced" in self.forms:
            module = Replaced(module)
        if "lazy" in self.forms:
            module = Lazy(module)
        if "inner" in self.forms:
            module = torch.compile(module, backend="aot_eager")
        model = DistributedDataParallel(module, gradient_as_bucket_view="views" in self.forms,
                                        static_graph="static" in self.forms, find_unused_parameters="unused" in self.forms)
        if "hook" in self.forms:
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        if "stateful" in self.forms:
            model.register_comm_hook(powerSGD_hook.PowerSGDState(None), powerSGD_hook.powerSGD_hook)
        if "batchnorm" in self.forms:
            model.module.append(nn.SyncBatchNorm(1))  # afterwards, because on CPUs DistributedDataParallel takes none
        return torch.compile(model, backend="aot_eager") if "outer" in self.forms else model

    def body(self, number, indices, inputs):
        if "entangled" in self.forms:
            self.entangled(indices, inputs)
            return
        if "unused" in self.forms:
            self.model.module.leaves_out = self.session.step_number % 3 == 2
        if "rate" in self.forms:
            self.optimizers[0].param_groups[0]["lr"] = 1e-3 / (number + 1)
        if "neighbours" in self.forms:
            self.turn(inputs)
        if "renewed" in self.forms:
            self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=1e-3)]
        if "stalls" in self.forms and dist.get_rank() == 1 and self.session.step_number == 1:
            signal.pause()
        if "heirs" in self.forms and (os.environ["DDPRUN_GENERATION"], dist.get_rank(), self.session.step_number) == ("1", 1, 12):
            os.kill(os.getpid(), signal.SIGKILL)
        super().body(number, indices, inputs)
        if "last" in self.forms and (os.environ["DDPRUN_GENERATION"], dist.get_rank(), self.session.step_number) == ("1", 1, 40):
            os.kill(os.getpid(), signal.SIGKILL)

    def entangled(self, indices, inputs):
        before = self.session.step_number
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        made = self.critic(inputs)
        self.model(made.detach()).pow(2).mean().backward()
        self.optimizers[0].step()
        loss = self.model(made).mean()
        loss.backward()
        self.optimizers[1].step()
        for scheduler in self.schedulers:
            scheduler.step()
        self.average.update()
        if self.session.step_number > before:
            self.write("step", step=self.session.step_number, loss=loss.item().hex(), samples=indices.tolist())

    def turn(self, inputs):
        """Adds the right neighbour's values to this rank's."""
        rank, size = dist.get_rank(), dist.get_world_size()
        sent, got = inputs.mean(0), torch.empty(inputs.shape[1])
        left, right = (rank - 1) % size, (rank + 1) % size
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, left), dist.P2POp(dist.irecv, got, right)]):
            work.wait()
        inputs += got
        if rank == 0:
            dist.send(inputs[0], 1)
        elif rank == 1:
            dist.recv(got, 0)
            inputs += got

    def evaluate(self):
        is_last = self.session.step_number == self.steps
        if "late" in self.forms and is_last and (os.environ.get("DDPRUN_GENERATION"), dist.get_rank()) == ("1", 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if "between" in self.forms and not is_last and (os.environ.get("DDPRUN_GENERATION"), dist.get_rank()) == ("1", 1):
            os.kill(os.getpid(), signal.SIGKILL)
        super().evaluate()

    def run(self):
        with self.model.join() if "join" in self.forms else contextlib.nullcontext():
            super().run()
        if "again" in self.forms:
            elastic.Session(self.models, self.optimizers, sampler=self.sampler)


if __name__ == "__main__":
    torch.set_num_threads(1)
    Ways(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).run()
