"""A plain loop of Accelerate's that trains through failures: elastic_accelerate.py JOURNAL EPOCHS [FORM]...

Each rank appends a line of JSON for each step that it has done, and at the end one with a digest. A step has three batches, and
the last one of an epoch two. Forms: foreign (the loader has a sampler of its own), kill=RANK:STEP:BATCH (once).
"""

import hashlib
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from torch import nn  # noqa: E402

from ddprun import elastic  # noqa: E402

BATCH, PER_EPOCH = 12, 14


class Data(torch.utils.data.Dataset):
    """Each read adds noise."""

    def __init__(self):
        self.values = torch.randn(BATCH * PER_EPOCH, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return index, self.values[index] + 0.1 * torch.randn(16) + 0.01 * random.random()


class Kills:
    """Kills this process at steps and batches of theirs, once in a job."""

    def __init__(self, path, forms):
        self.path = path
        self.kills = [form[len("kill="):] for form in forms if form.startswith("kill=")]
        self.step = self.batch = 0

    def at(self, step):
        self.batch = self.batch + 1 if step == self.step else 0
        self.step = step
        place = f"{os.environ['RANK']}:{step}:{self.batch}"
        if place in self.kills and not os.path.exists(f"{self.path}.{place}"):
            os.close(os.open(f"{self.path}.{place}", os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)


class Journal:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": int(os.environ["RANK"]),
                "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.file, json.dumps(line).encode() + b"\n")


def digest(*values):
    whole = hashlib.sha256()
    for value in values:
        whole.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode())
    return whole.hexdigest()


def main(path, epochs, *forms):
    journal = Journal(path)
    torch.set_num_threads(1)
    elastic.init_process_group()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    data = Data()
    sampler = elastic.ElasticSampler(data, global_batch=BATCH, seed=1)
    loader = (torch.utils.data.DataLoader(data, batch_size=4, shuffle=True) if "foreign" in forms else
              torch.utils.data.DataLoader(data, batch_sampler=sampler))
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    session = elastic.Session(model, optimizer, scheduler, sampler=sampler)
    kills = Kills(path, forms)
    while sampler.epoch < int(epochs):
        for indices, inputs in session.batches(loader):
            with accelerator.accumulate(model):
                loss = model(inputs).pow(2).mean()
                kills.at(session.step_number)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                before = session.step_number
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if session.step_number > before:
                journal.write("step", step=session.step_number, loss=loss.item().hex(), samples=indices.tolist(),
                              rate=scheduler.get_last_lr()[0])
    states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    journal.write("end", digest=digest(*accelerator.unwrap_model(model).state_dict().values(), *states, scheduler.state_dict()),
                  step=session.step_number, recoveries=[list(one) for one in session.recoveries])
    dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
