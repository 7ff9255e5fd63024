"""What torch's own torch/numa/binding.py gives to each GPU's worker, on machines that only exist in folders.

Run by a Python that has torch. Reads one line of JSON for each question: {"root", "mode", "allowed": CPUs, "gpus": PCI
ids as CUDA counts them}; answers each with one line: the list of every GPU's CPUs, or {"error": type}.
"""

import builtins
import inspect
import json
import os
import sys
from types import SimpleNamespace

from torch.numa import binding


def look_at(root, allowed, gpus):
    """Turns binding.py's eyes to the machine below `root`: the calls by which it asks the kernel and CUDA."""
    binding.open = lambda path: builtins.open(root + path, encoding="ascii")
    binding.os = SimpleNamespace(listdir=lambda path: os.listdir(root + path), path=os.path,
                                 sched_getaffinity=lambda pid: set(allowed))

    def properties(index):
        domain, bus, device = gpus[index].split(".")[0].split(":")
        return SimpleNamespace(pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(device, 16))

    device = SimpleNamespace(device_count=lambda: len(gpus), get_device_properties=properties, is_available=lambda: True,
                             current_accelerator=lambda: "cuda")
    # The pinned torch asks CUDA, the newest any accelerator.
    binding.torch = SimpleNamespace(cuda=device, accelerator=device, get_device_module=lambda name: device)


def answer(question):
    look_at(question["root"], question["allowed"], question["gpus"])
    options = binding.NumaOptions(binding.AffinityMode(question["mode"]))
    cpus = []
    argument, _ = inspect.signature(binding._get_logical_cpus_to_bind_to).parameters  # its name differs between versions
    for index in range(len(question["gpus"])):
        own = binding._get_logical_cpus_to_bind_to(**{argument: index}, numa_options=options)
        if not own:
            raise RuntimeError("Must bind to a non-empty set of CPU indices")  # _raise_if_binding_invalid's
        cpus.append(sorted(own))
    return cpus


for line in sys.stdin:
    try:
        print(json.dumps(answer(json.loads(line))), flush=True)
    except (RuntimeError, ValueError, OSError, ZeroDivisionError) as error:
        print(json.dumps({"error": type(error).__name__}), flush=True)
