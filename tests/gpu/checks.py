"""The checks of scripts/gpu_check, the most important first."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """NAME_check.py of this folder. `limit`: seconds on a GPU; scripts/lib/gpu_check.py gives a twin four times that."""
    name: str
    what: str
    limit: int


CHECKS = (
    Check("train", "a DDP script and C++ Sessions over NCCL: one rank, three on the GPU, the CPU's losses", 60),
    Check("survivors", "C++ workers that are killed over NCCL: the others keep process and state", 90),
    Check("elastic", "Python loops, DDP and FSDP2, that train through kills over NCCL: processes are kept, and bits", 180),
    Check("memory", "a GPU's state in the agent's memory: a killed worker's bits, GB/s beside the copy engine", 60),
    Check("kills", "a killed Python worker: its next step, cold and warm, by part", 120),
    Check("warm_fork", "a parked interpreter holds nothing of a GPU, whatever its modules ask at import; forks have theirs", 60),
    Check("hang", "a rank in an endless kernel or missing from a collective is named; one that waits for the GPU is healthy", 60),
    Check("clean", "no process and no memory of the GPU is left, however a job ends", 45),
    Check("devices", "which GPUs workers get, bindings near the card, what env, doctor and preflight say of it", 45),
    Check("zero", "C++ ZeRO stages beside plain training in each precision, overflows, the flat AdamW's kernels", 75),
    Check("oom", "a full GPU and an assert in a kernel: report, exit status, memory for the next start", 30),
    Check("compile", "torch.compile, CUDA graphs and checkpointed activations under the hook that counts steps", 45),
    Check("figures", "memory and load on page, metrics, status and top beside nvidia-smi", 30),
    Check("speed", "beside torchrun and plain PyTorch: starts, a killed worker, a GPT's steps, checkpoints", 120),
)
