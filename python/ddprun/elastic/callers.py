"""Which part of a program calls a collective. Nothing but the standard library."""

import sys

# What lies between a caller and a group.
_BETWEEN = ("ddprun.elastic.callers", "ddprun.elastic.groups", "ddprun.elastic.nccl", "ddprun.elastic.set_up",
            "torch.distributed.distributed_c10d", "torch.distributed.c10d_logger")
_FSDP = "torch.distributed.fsdp."
# Wrappers of models and backward passes: their collectives are of the state, or of training it. DCP's aren't.
_OF_MODELS = (_FSDP, "torch.nn.parallel.", "torch.distributed.utils", "torch.distributed._composable", "torch.distributed.algorithms",
              "torch.distributed.tensor", "torch.distributed.device_mesh", "torch.autograd", "torch.nn.modules", "ddprun.")


def _module():
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "") in _BETWEEN:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""


def is_fsdp():
    """Whether fully_shard() asks torch for a collective, or waits for one."""
    return _module().startswith(_FSDP)


def is_of_models():
    """Whether a wrapper of models, or a backward pass, asks for a collective."""
    return _module().startswith(_OF_MODELS)
