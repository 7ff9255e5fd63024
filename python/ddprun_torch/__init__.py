"""Lets programs that launch with torchrun use ddprun instead; docs/PYTHON.md.

Only the standard library is imported here: the package is loaded at the start of every interpreter in
whose environment it is enabled, and torch only when somebody has imported it anyhow.
"""

from ddprun_torch.shim import install
from ddprun_torch.program import find_ddprun

__all__ = ["find_ddprun", "install"]
