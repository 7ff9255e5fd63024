#!/usr/bin/env python3
"""worker_bench_checkpoint with PyTorch's own asynchronous checkpoints (torch.distributed.checkpoint.async_save).

    checkpoint.py DIRECTORY SAVES
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
torch.set_num_threads(1)
dist.init_process_group("gloo")
state = {"weight": torch.rand(64 << 20)}
stalls = []
for step in range(int(sys.argv[2]) + 1):
    began = time.monotonic()
    written = dcp.async_save(state, checkpoint_id=os.path.join(sys.argv[1], str(step)))
    stalls.append(time.monotonic() - began)
    written.result()
print(json.dumps({"stall": statistics.median(stalls[1:]), "first_stall": stalls[0]}), flush=True)
os._exit(0)  # Gloo's threads abort the interpreter's end now and then
