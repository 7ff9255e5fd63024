#!/usr/bin/env python3
"""What a step without a fault pays for a Session: session_cost_bench.py [--pairs N] [--steps N] [--width N] [--bare] [--profile]

In each process trainings of the same network take turns, some steps of the one, then as many of the other:

- Session: DistributedDataParallel over the group of elastic.init_process_group(), in session.batches()
- plain: DistributedDataParallel over a group of torch's own Gloo, and the same sampler
- another plain one: its difference is the machine's noise

The bench measures the processor's time in the thread that trains, which other work on the machine changes less, and the time that
passes. It prints the median of rank 0's differences of pairs, beside the time of a plain step.
--bare: the network has no buffers.
--profile: the functions in which a Session's steps pass the most time.
"""

import argparse
import cProfile
import functools
import os
import pstats
import statistics
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "support")]

SAMPLES, BATCH = 480, 12


class Side:
    """One of the two trainings."""

    def __init__(self, width, has_buffers, group, sampler, session_of=None):
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(3)
        norm = nn.BatchNorm1d if has_buffers else nn.LayerNorm
        network = nn.Sequential(nn.Linear(64, width), norm(width), nn.ReLU(), nn.Linear(width, width), norm(width), nn.ReLU(),
                                nn.Linear(width, 1))
        self.model = DistributedDataParallel(network, process_group=group)
        self.model.forward = functools.partial(DistributedDataParallel.forward, self.model)  # a Session refuses other models
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100000)
        self.sampler = sampler
        data = torch.randn(SAMPLES, 64, generator=torch.Generator().manual_seed(1))
        self.loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        self.session = session_of(self) if session_of else None
        self.batches = self.forever()

    def forever(self):
        while True:
            if self.session is not None:
                yield from self.session.batches(self.loader)
            else:
                for batch in self.loader:
                    yield batch
                    self.sampler.commit()

    def train(self, steps):
        """(seconds of the processor, seconds) that a step takes."""
        busy, begin = time.thread_time(), time.perf_counter()
        for _ in range(steps):
            loss = self.model(next(self.batches)).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
        return (time.thread_time() - busy) / steps, (time.perf_counter() - begin) / steps


def train(arguments):
    import torch
    import torch.distributed as dist
    from ddprun import elastic

    def session(side):
        return elastic.Session(side.model, side.optimizer, side.scheduler, sampler=side.sampler)
    torch.set_num_threads(1)
    elastic.init_process_group("gloo")
    plain_group = dist.new_group(backend="gloo")
    plain, other, kept = (
        Side(arguments.width, not arguments.bare, group, elastic.ElasticSampler(SAMPLES, global_batch=BATCH, seed=1), made)
        for group, made in ((plain_group, None), (plain_group, None), (None, session)))
    sides = [kept, plain, other]
    for side in sides:
        side.train(arguments.steps)
    rounds = []
    for number in range(arguments.pairs):
        rounds.append({side: side.train(arguments.steps) for side in sides[::1 if number % 2 else -1]})
    profile = cProfile.Profile()
    if arguments.profile:
        profile.runcall(kept.train, arguments.steps * 10)
    if dist.get_rank() == 0:
        for number, what in enumerate(("processor", "passed")):
            before = 1e6 * statistics.median(one[plain][number] for one in rounds)
            more, noise = (1e6 * statistics.median(one[side][number] - one[plain][number] for one in rounds)
                           for side in (kept, other))
            print(f"{what}: a plain step {before:.0f} us; a Session's {more:+.1f} us ({100 * more / before:+.2f} %); "
                  f"another plain one's {noise:+.1f} us")
        if arguments.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        train(arguments)
        return 0
    from bed import DDPRUN, TORCH_PYTHON
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    python = os.environ.get("PYTHON_EXEC", TORCH_PYTHON)
    command = [DDPRUN, "--nproc_per_node", str(arguments.workers), "--mark", "off", os.path.abspath(__file__), *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, "PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
