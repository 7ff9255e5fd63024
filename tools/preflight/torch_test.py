# What each rank of `ddprun test` runs with torch: DDP in one process, DDP on all ranks, all-reduce
# over sizes. Compiled into ddprun. Bounded in time: small models, few iterations.
import datetime
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ITERATIONS = 10
SECONDS_FOR_SIZES = 1.5
LARGEST_BYTES = 64 << 20
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL_RANK = int(os.environ["LOCAL_RANK"])
# Where the report on the network waits, when all is to be one JSON object.
NETWORK_REPORT = os.environ.pop("DDPRUN_TEST_NETWORK", "")
GPUS = torch.cuda.device_count()


def say(text):
    if RANK == 0 and not NETWORK_REPORT:
        print(text, flush=True)


def choose_device():
    """The CPU for all, where one has no GPU of its own: it couldn't meet the others over NCCL."""
    store = next(dist.rendezvous("env://"))[0]
    store.set(f"ddprun_test/{RANK}", str(LOCAL_RANK < GPUS))
    without = [rank for rank in range(WORLD) if store.get(f"ddprun_test/{rank}") == b"False"]
    if 0 < len(without) < WORLD:
        say(f"\n{len(without)} of {WORLD} ranks have no GPU of their own, rank {without[0]} for one: all are tested on the CPU")
    return torch.device("cpu") if without else torch.device("cuda", LOCAL_RANK)


DEVICE = choose_device()


def finish():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def place(rank, world, device):
    return f"Process {rank}/{world} initialized on {device}"


def device_name():
    return f"GPU {DEVICE.index}" if DEVICE.type == "cuda" else "CPU"


def train():
    """Seconds for the iterations, and the number of parameters; raises when ranks differ after them."""
    torch.manual_seed(RANK)
    model = torch.nn.Linear(100, 10).to(DEVICE)
    ddp = DistributedDataParallel(model, device_ids=[DEVICE.index] if DEVICE.type == "cuda" else None)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    batch, target = torch.randn(32, 100, device=DEVICE), torch.randn(32, 10, device=DEVICE)
    finish()
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(batch), target).backward()
        optimizer.step()
    finish()
    took = time.perf_counter() - began
    total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum().reshape(1)
    least, most = total.clone(), total.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if not torch.isfinite(total).all() or least.item() != most.item():
        raise RuntimeError(f"after {ITERATIONS} iterations the ranks have different parameters")
    return took, sum(p.numel() for p in model.parameters())


def show_training(took, parameters, world):
    say(f"World size: {world}")
    say(f"Time for {ITERATIONS} iterations: {took:.4f} s, {took / ITERATIONS * 1e3:.3f} ms each")
    say(f"Parameters: {parameters:,}")


def test_alone(backend):
    """Whether torch trains at all, on each rank by itself, at the same time: DDP's first use takes seconds."""
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    say(f"\nDDP in a single process ({backend})\nGPUs available: {GPUS}\n{place(0, 1, device_name())}")
    took, parameters = train()
    show_training(took, parameters, 1)
    say("Process 0/1: success")
    dist.destroy_process_group()
    return {"seconds": took, "parameters": parameters}


def test_all(backend):
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=30))
    devices = [None] * WORLD
    dist.all_gather_object(devices, f"{device_name()} of {os.uname().nodename}")
    say(f"\nDDP on all ranks ({backend})")
    for rank, device in enumerate(devices):
        say(place(rank, WORLD, device))
    took, parameters = train()
    show_training(took, parameters, WORLD)
    for rank in range(WORLD):
        say(f"Process {rank}/{WORLD}: success")
    return {"seconds": took, "parameters": parameters, "devices": devices}


def time_all_reduce(tensor, rounds):
    finish()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(tensor)
    finish()
    # The slowest rank's, so that all agree on when to stop.
    took = torch.tensor([(time.perf_counter() - began) / rounds], dtype=torch.float64, device=DEVICE)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.item()


def test_sizes():
    """Columns as of nccl-tests: algbw = size / time, busbw = algbw * 2 (n - 1) / n."""
    say(f"\nall-reduce of {WORLD} ranks\n#{'size':>11} {'count':>11} {'type':>7} {'redop':>6} {'time':>10} {'algbw':>8} "
        f"{'busbw':>8}\n#{'(B)':>11} {'(elements)':>11} {'':>7} {'':>6} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8}")
    rows, size, spent = [], 8, 0.0
    while size <= LARGEST_BYTES and spent < SECONDS_FOR_SIZES:
        tensor = torch.zeros(size // 4, device=DEVICE)
        first = time_all_reduce(tensor, 1)
        rounds = max(1, min(20, int(0.1 / max(first, 1e-6))))
        took = min(first, time_all_reduce(tensor, rounds))
        spent += first + took * rounds
        rate = size / took / 1e9
        row = {"size": size, "count": size // 4, "type": "float", "redop": "sum", "time_us": took * 1e6,
               "algbw_gb_s": rate, "busbw_gb_s": rate * 2 * (WORLD - 1) / WORLD}
        rows.append(row)
        say(f" {size:>11} {row['count']:>11} {'float':>7} {'sum':>6} {row['time_us']:>10.1f} {rate:>8.3f} "
            f"{row['busbw_gb_s']:>8.3f}")
        size *= 8
    return rows


def main():
    backend = "nccl" if DEVICE.type == "cuda" and dist.is_nccl_available() else "gloo"
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
    report = None
    try:
        tested = {"version": torch.__version__, "gpus": GPUS, "backend": backend, "alone": test_alone(backend)}
        tested["all"] = test_all(backend)
        tested["all_reduce"] = test_sizes() if WORLD > 1 else []
        dist.destroy_process_group()
        report = tested
        say("\ntorch: all ranks trained, and agree")
    finally:
        if RANK == 0 and NETWORK_REPORT:
            with open(NETWORK_REPORT, encoding="utf-8") as source:
                network = json.load(source)
            print(json.dumps({"network": network, "torch": report}), flush=True)


main()
