#!/usr/bin/env python3
"""What launches on top of torchrun or reads what it sets: accelerate, DeepSpeed's way, Lightning, torch itself."""

import os
import unittest

from python_bed import DDPRUN, LAUNCHERS, MISSING, PythonTestCase
from ports import enter_private_network

# What deepspeed.init_distributed(dist_backend="gloo") does with the environment (deepspeed/comm/comm.py 0.19): it wants
# these variables (else it asks MPI), then torch's env:// store. DeepSpeed itself builds extensions at its installation.
DEEPSPEED = '''import os
import torch
import torch.distributed as dist
required = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"]
assert all(name in os.environ for name in required)
dist.init_process_group("gloo", init_method=None, rank=-1, world_size=-1)
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
assert int(os.environ["LOCAL_RANK"]) == dist.get_rank()
os.write(1, f"sum {int(value)}\\n".encode())  # one write, which no other rank's divides
dist.barrier()
dist.destroy_process_group()
'''

LIGHTNING = '''import os
import pytorch_lightning as lightning
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
assert TorchElasticEnvironment.detect()
here = TorchElasticEnvironment()
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=2, limit_val_batches=0,
                            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(BoringModel())
assert isinstance(trainer.strategy.cluster_environment, TorchElasticEnvironment)
facts = (trainer.global_rank, trainer.world_size, here.local_rank(), here.node_rank(), trainer.global_step)
os.write(1, ("trained " + " ".join(map(str, facts)) + "\\n").encode())
'''

TIMER = '''import os, signal
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=60, scope="good"):
    os.write(1, b"in time\\n")
# Rank 1 hangs only when rank 0 has said so.
open("FIFO", "w" if os.environ["RANK"] == "0" else "r").close()
if os.environ["RANK"] == "1":
    with timer.expires(after=0.2, scope="hang"):
        signal.pause()
signal.pause()
'''

# torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends, and the script doesn't destroy its
# process group.
ENDS_AT_ONCE = '''import os, runpy, sys
runpy.run_path("SCRIPT", run_name="__main__")
sys.stdout.flush()
os._exit(0)
'''

CONTROL = '''import http.client, os, socket
from torch.distributed.elastic.control_plane import worker_main
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["TORCH_WORKER_SERVER_SOCKET"])
with worker_main():
    connection = Connection("localhost")
    connection.request("POST", "/handler/ping")
    answer = connection.getresponse()
    print(answer.status, answer.read().decode().strip(), flush=True)
'''


@unittest.skipUnless(os.path.exists(LAUNCHERS), MISSING)
class Launchers(PythonTestCase):
    def ddprun(self, name, options, text=None, script=None, env=None):
        script = script or self.bed.write(f"{name}.py", text)
        return self.bed.run(name, [*options, script], env={"PYTHON_EXEC": LAUNCHERS, "OMP_NUM_THREADS": "1", **(env or {})})

    def accelerate_script(self):
        """Accelerate's own test, in a process that ends right after it."""
        return self.bed.write("accelerate_test.py", ENDS_AT_ONCE.replace("SCRIPT", self.shipped_script()))

    @staticmethod
    def shipped_script():
        folder = os.path.join(os.path.dirname(LAUNCHERS), "..", "lib")
        (version,) = os.listdir(folder)
        return os.path.join(folder, version, "site-packages", "accelerate", "test_utils", "scripts", "test_script.py")

    def test_accelerate_launch(self):
        # --multi_gpu is accelerate's way to torch.distributed.run; the script itself is kept on the CPU.
        process = self.python("accelerate", ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", 2,
                                             "--num_machines", 1, "--mixed_precision", "no", "--dynamo_backend", "no",
                                             self.accelerate_script()],
                              env={"ACCELERATE_USE_CPU": "true", "LOGLEVEL": "INFO"})
        text = self.text_of(process)
        self.assertIn("Training yielded the same results on one CPU or distributed setup", text)
        self.assertIn("ddprun] generation 1: 2 workers on 1 node", text)

    def test_accelerates_script_by_ddprun(self):
        process = self.ddprun("script", ["--nproc_per_node", 2], script=self.accelerate_script(),
                              env={"ACCELERATE_USE_CPU": "true"})
        self.assertIn("Training yielded the same results on one CPU or distributed setup", self.text_of(process))

    def test_deepspeeds_way_to_begin(self):
        text = self.text_of(self.ddprun("deepspeed", ["--nproc_per_node", 2], DEEPSPEED))
        self.assertEqual(2, text.count("sum 3\n"))

    def test_lightning_sees_torchelastic_and_trains(self):
        text = self.text_of(self.ddprun("lightning", ["--nproc_per_node", 2], LIGHTNING))
        self.assertIn("trained 0 2 0 0 2\n", text)
        self.assertIn("trained 1 2 1 0 2\n", text)

    def test_torchs_timer_client(self):
        os.mkfifo(self.bed.path("fifo"))
        process = self.ddprun("timer", ["--nproc_per_node", 2], TIMER.replace("FIFO", self.bed.path("fifo")),
                              env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
        text = self.text_of(process, 1)
        self.assertEqual(2, text.count("in time\n"))
        self.assertIn("watchdog timer 'hang", text)
        self.assertIn("worker local rank 1", text)

    def test_torchs_control_plane(self):
        process = self.ddprun("control", [], CONTROL, env={"TORCH_WORKER_SERVER_SOCKET": self.bed.path("control.sock")})
        self.assertIn("200 pong\n", self.text_of(process))


if __name__ == "__main__":
    assert os.access(DDPRUN, os.X_OK), f"no {DDPRUN}"
    enter_private_network()  # accelerate names port 29500
    unittest.main(verbosity=2)
