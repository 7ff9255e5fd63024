"""The loops of odd_programs.py's programs: each class is copied, as text, into programs. step() is called for each step,
end() after the last one."""

import os
from time import sleep

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
STEP = 0.02  # seconds; programs have their own


class Alone:
    """A program without a process group."""

    def step(self, step):
        sleep(STEP)

    def end(self):
        pass


class Plain:
    """DistributedDataParallel."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        self.model = DistributedDataParallel(torch.nn.Linear(4, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.batch = torch.ones(2, 4)

    def step(self, step):
        sleep(STEP)
        self.optimizer.zero_grad()
        self.model(self.batch).sum().backward()
        self.optimizer.step()

    def end(self):
        import torch.distributed as dist
        dist.destroy_process_group()


class Accumulating:
    """DistributedDataParallel, with four batches a step."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        self.model = DistributedDataParallel(torch.nn.Linear(4, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)
        self.batch = torch.ones(2, 4)

    def step(self, step):
        with self.model.no_sync():
            for _ in range(3):
                sleep(STEP / 4)
                self.model(self.batch).sum().backward()
        sleep(STEP / 4)
        self.model(self.batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def end(self):
        import torch.distributed as dist
        dist.destroy_process_group()


class OwnCollectives:
    """Sums without an optimizer."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        self.total = torch.ones(16)

    def step(self, step):
        import torch.distributed as dist
        sleep(STEP)
        dist.all_reduce(self.total, op=dist.ReduceOp.MAX)

    def end(self):
        import torch.distributed as dist
        dist.barrier()
        dist.destroy_process_group()


class Inference:
    """Each rank has its own batches; what they found is gathered at each tenth."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        self.model = torch.nn.Linear(4, 4)

    def step(self, step):
        import torch
        import torch.distributed as dist
        sleep(STEP)
        with torch.no_grad():
            found = self.model(torch.ones(2, 4))
        if step % 10 == 9:
            dist.all_gather([torch.empty_like(found) for _ in range(WORLD)], found)

    def end(self):
        import torch.distributed as dist
        dist.barrier()


class Sampler:
    """Reinforcement learning: rank 0 learns, and hands the weights to all ranks, which play."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        self.policy = torch.nn.Linear(4, 2)

    def step(self, step):
        import torch
        import torch.distributed as dist
        for weight in self.policy.parameters():
            dist.broadcast(weight.data, 0)
        sleep(STEP)
        reward = self.policy(torch.ones(4)).sum().reshape(1).detach()
        dist.gather(reward, [torch.empty(1) for _ in range(WORLD)] if RANK == 0 else None)
        if RANK == 0:
            with torch.no_grad():
                for weight in self.policy.parameters():
                    weight += 0.01

    def end(self):
        import torch.distributed as dist
        dist.destroy_process_group()


class ByHand:
    """Averages gradients by itself."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)

    def step(self, step):
        import torch
        import torch.distributed as dist
        sleep(STEP)
        self.model(torch.ones(2, 4)).sum().backward()
        for weight in self.model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad /= WORLD
        self.optimizer.step()
        self.optimizer.zero_grad()

    def end(self):
        import torch.distributed as dist
        dist.destroy_process_group()


class TwoGroups:
    """Trains in one group, and sums figures in another."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        self.figures = dist.new_group()
        self.model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=dist.new_group())
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, step):
        import torch
        import torch.distributed as dist
        sleep(STEP)
        loss = self.model(torch.ones(2, 4)).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(loss.detach(), group=self.figures)

    def end(self):
        import torch.distributed as dist
        dist.destroy_process_group()


class Marking(Plain):
    """Marks its steps with the lines of docs/PROGRESS.md, and nothing else."""

    def step(self, step):
        mark(TRAIN, step + 1)  # noqa: F821
        super().step(step)


# More of those that most people have.
BASES = (Plain, Plain, Accumulating, OwnCollectives, Inference, Sampler, ByHand, TwoGroups, Marking, Alone)
