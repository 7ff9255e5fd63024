#!/usr/bin/env python3
"""Plain DistributedDataParallel over gloo, as a user writes it, that journals what it does.

ddp_worker.py JOURNAL FOLDER: trains until a worker gets SIGUSR1, then all end well after the same step; one that gets
SIGUSR2 hangs in its next step. Rank 0 saves after every fifth step (a whole file, renamed), and all resume from
there. Journal lines: "worker" (as worker.py's), "step" (step, and a digest of the parameters after it), "saving" and
"saved".
"""

import hashlib
import os
import signal
import sys

ORDERS = {signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, ORDERS)  # before torch has threads

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from worker import write_line  # noqa: E402

JOURNAL, FOLDER = sys.argv[1:3]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
GENERATION = int(os.environ["DDPRUN_GENERATION"])
CHECKPOINT = os.path.join(FOLDER, "checkpoint.pt")
SAVE_EVERY = 5
PADDING = 4 << 20  # bytes beside the model, so that saving takes a moment


def tell(event, **fields):
    write_line(JOURNAL, event, rank=RANK, world=WORLD, generation=GENERATION, host=os.uname().nodename, **fields)


def digest(model):
    state = hashlib.sha256()
    for parameter in model.parameters():
        state.update(parameter.detach().numpy().tobytes())
    return state.hexdigest()[:16]


def save(model, step):
    tell("saving", step=step)
    partial = f"{CHECKPOINT}.{GENERATION}.partial"
    with open(partial, "wb") as sink:
        torch.save({"model": model.state_dict(), "step": step, "padding": torch.empty(PADDING, dtype=torch.uint8)}, sink)
        sink.flush()
        os.fsync(sink.fileno())
    os.rename(partial, CHECKPOINT)
    tell("saved", step=step)


def restore(model):
    """The step that the checkpoint was saved after; 0 when there is none. Rank 0's is everybody's."""
    step = torch.zeros(1, dtype=torch.int64)
    if RANK == 0 and os.path.exists(CHECKPOINT):
        saved = torch.load(CHECKPOINT, weights_only=True)
        model.load_state_dict(saved["model"])
        step[0] = saved["step"]
    dist.broadcast(step, 0)
    return int(step)


def main():
    tell("worker", restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(16, 4)
    step = restore(model)
    ddp = torch.nn.parallel.DistributedDataParallel(model)  # sends rank 0's parameters to all
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    tell("begins", step=step, parameters=digest(model))
    ends = torch.zeros(1)
    while ends.item() == 0:
        optimizer.zero_grad()
        ddp(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        step += 1
        tell("step", step=step, parameters=digest(model))
        if RANK == 0 and step % SAVE_EVERY == 0:
            save(model, step)
        order = signal.sigtimedwait(ORDERS, 0.02)
        if order is not None and order.si_signo == signal.SIGUSR2:
            tell("hangs", step=step)
            signal.pause()
        ends = torch.tensor([float(order is not None)])
        dist.all_reduce(ends)
    if RANK == 0:
        save(model, step)
    tell("ends", step=step)
    dist.destroy_process_group()
    os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends


if __name__ == "__main__":
    main()
