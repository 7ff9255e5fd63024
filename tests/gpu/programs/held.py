"""What a process holds of GPUs, as the kernel shows it. For programs of this folder, and for checks that look from outside."""

import os


def held(pid="self", prefix="/dev/nvidia"):
    """The device files that a process has open or mapped. Errors: OSError when it has ended."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        found.update(line.split(maxsplit=5)[5].strip() for line in maps if "/" in line)
    return sorted(path for path in found if path.startswith(prefix))


def had_cuda(torch):
    """Why this process can't be one that has never met CUDA: "" = it can."""
    if torch.cuda.is_initialized():
        return "CUDA is initialized"
    if torch.cuda._is_in_bad_fork():  # pylint: disable=protected-access
        return "forked from a process that had initialized CUDA"
    return " ".join(held())
