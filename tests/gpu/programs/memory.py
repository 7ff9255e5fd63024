"""A training with its state in the agent's memory: memory.py DEVICE JOURNAL STEPS LAYERS WIDTH. Lines of JSON for each step with
what its save has cost, for what is restored, and on a GPU for a plain copy by its copy engine."""

import hashlib
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

from ddprun import elastic  # noqa: E402

EVERY, COPIES = 5, 5


class Training:
    def __init__(self, device, journal, layers, width):
        self.device, self.width = device, width
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        torch.manual_seed(1)
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.memory = elastic.MemoryCheckpoint(model=self.model, optimizer=self.optimizer, every=EVERY)

    def write(self, event, **what):
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": 0, **what}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def wait_for_device(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def tensors(self):
        states = self.optimizer.state.values()
        return [*self.model.parameters(), *(value for state in states for value in state.values() if value.dim())]

    def digest(self):
        whole = hashlib.sha256()
        for tensor in self.tensors():
            whole.update(tensor.detach().cpu().numpy().tobytes())
        return whole.hexdigest()

    def train(self, step):
        generator = torch.Generator().manual_seed(step)
        self.model(torch.randn(64, self.width, generator=generator).to(self.device)).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.wait_for_device()

    def measure_copy(self):
        """Bytes a second of a plain copy into pinned memory."""
        largest = max(self.tensors(), key=torch.numel)
        host, seconds = torch.empty(largest.shape, pin_memory=True), []
        for _ in range(COPIES):
            begin = time.perf_counter()
            host.copy_(largest, non_blocking=True)
            self.wait_for_device()
            seconds.append(time.perf_counter() - begin)
        self.write("copied", rate=largest.nbytes / statistics.median(seconds))

    def run(self, steps):
        begin = time.perf_counter()
        first = self.memory.restore()
        self.wait_for_device()
        self.write("restored", step=first, seconds=time.perf_counter() - begin, digest=self.digest() if first else "",
                   bytes=sum(tensor.nbytes for tensor in self.tensors()))
        for step in range(first, steps):
            begin, seen = time.perf_counter(), self.memory.seconds_seen
            self.train(step)
            self.memory.save(step + 1)
            seconds = time.perf_counter() - begin
            saved = (step + 1) % EVERY == 0
            digest = ""
            if saved:
                self.memory._checkpoints.wait()
                digest = self.digest()
            self.write("step", step=step + 1, seconds=seconds, seen=self.memory.seconds_seen - seen, digest=digest,
                       beside=self.memory._checkpoints.seconds_beside if saved else None)
        if self.device == "cuda":
            self.measure_copy()
        self.write("end", step=steps, digest=self.digest())


if __name__ == "__main__":
    given, path, count, *shape = sys.argv[1:]
    Training(given, path, *map(int, shape)).run(int(count))
