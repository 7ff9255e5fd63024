"""Replaces torchrun by ddprun in programs that launch workers with it; docs/PYTHON.md.

Imports only the standard library, because every interpreter loads this package at its start if its environment enables it. torch
is used only after the program has imported it.
"""

from ddprun_torch.shim import install
from ddprun_torch.program import find_ddprun

__all__ = ["find_ddprun", "install"]
