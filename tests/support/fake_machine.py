"""Another machine's /sys and /proc, as far as CPUs, NUMA nodes and GPUs are concerned, in a folder."""

import os
from dataclasses import dataclass, field


def cpu_list(cpus):
    """The kernel's list: "0-2,4"."""
    text, cpus = [], sorted(cpus)
    while cpus:
        last = 0
        while last + 1 < len(cpus) and cpus[last + 1] == cpus[last] + 1:
            last += 1
        text.append(f"{cpus[0]}-{cpus[last]}" if last else str(cpus[0]))
        cpus = cpus[last + 1:]
    return ",".join(text)


def _cpu_map(cpus, width):
    bits = f"{sum(1 << cpu for cpu in cpus):0{(width + 31) // 32 * 8}x}"
    return ",".join(bits[i:i + 8] for i in range(0, len(bits), 8))


@dataclass
class FakeMachine:
    """Each group is a set of CPU numbers; every online CPU is in one of cores and of packages."""

    cores: list
    packages: dict  # the kernel's number -> CPUs
    nodes: dict     # the same; a node of memory alone has none
    caches: list    # (level, "Data" | "Instruction" | "Unified", CPUs)
    gpus: list = field(default_factory=list)  # (PCI id, NUMA node as in numa_node) in the order of PCI ids

    @property
    def cpus(self):
        return sorted(cpu for core in self.cores for cpu in core)

    def write(self, root):
        self._root = root
        system = "sys/devices/system"
        for name in ("online", "possible", "present"):
            self._file(f"{system}/cpu/{name}", cpu_list(self.cpus))
        for cpu in self.cpus:
            self._write_cpu(f"{system}/cpu/cpu{cpu}", cpu)
        for name in ("online", "possible", "has_memory", "has_normal_memory"):
            self._file(f"{system}/node/{name}", cpu_list(self.nodes))
        for node, cpus in self.nodes.items():
            folder = f"{system}/node/node{node}"
            self._group(f"{folder}/cpumap", f"{folder}/cpulist", cpus)
            self._file(f"{folder}/meminfo", f"Node {node} MemTotal: 1048576 kB")
            self._file(f"{folder}/distance", " ".join("10" if node == other else "20" for other in self.nodes))
        self._file("proc/cpuinfo", "".join(f"processor\t: {cpu}\n\n" for cpu in self.cpus))
        for number, (pci_id, node) in enumerate(self.gpus):
            self._file(f"proc/driver/nvidia/gpus/{pci_id}/information",
                       f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-0000000{number}-aaaa")
            self._file(f"sys/bus/pci/devices/{pci_id}/numa_node", str(node))

    def _write_cpu(self, folder, cpu):
        topology = f"{folder}/topology"
        core = next(cpus for cpus in self.cores if cpu in cpus)
        package, in_package = next(item for item in self.packages.items() if cpu in item[1])
        self._file(f"{topology}/core_id", str(min(core)))
        self._file(f"{topology}/physical_package_id", str(package))
        # The names of older kernels, which newer kernels have, too.
        self._group(f"{topology}/thread_siblings", f"{topology}/thread_siblings_list", core)
        self._group(f"{topology}/core_siblings", f"{topology}/core_siblings_list", in_package)
        own = [cache for cache in self.caches if cpu in cache[2]]
        for index, (level, kind, cpus) in enumerate(own):
            cache = f"{folder}/cache/index{index}"
            for name, text in (("level", level), ("type", kind), ("size", f"{32 << level}K"), ("number_of_sets", 64),
                               ("coherency_line_size", 64), ("ways_of_associativity", 8)):
                self._file(f"{cache}/{name}", str(text))
            self._group(f"{cache}/shared_cpu_map", f"{cache}/shared_cpu_list", cpus)

    def _group(self, map_path, list_path, cpus):
        self._file(map_path, _cpu_map(cpus, max(self.cpus) + 1))
        self._file(list_path, cpu_list(cpus))

    def _file(self, path, text):
        path = os.path.join(self._root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as sink:
            sink.write(text + "\n")


def regular(sockets, nodes, complexes, cores, threads, gpus=(), numbering="threads_last"):
    """A machine of `sockets` sockets of `nodes` NUMA nodes of `complexes` last-level caches of `cores` cores of
    `threads` CPUs; `gpus` are their NUMA nodes.

    numbering: "threads_last" as most firmware (all first threads, then all second ones), "siblings_together", or
    "nodes_in_turn" (consecutive CPUs are in different nodes).
    """
    all_nodes, per_node = sockets * nodes, complexes * cores
    all_cores = all_nodes * per_node

    def number(core, thread):
        if numbering == "siblings_together":
            return core * threads + thread
        if numbering == "nodes_in_turn":
            core = core % per_node * all_nodes + core // per_node
        return thread * all_cores + core

    core_sets = [{number(core, thread) for thread in range(threads)} for core in range(all_cores)]

    def grouped(size):
        return [set().union(*core_sets[i:i + size]) for i in range(0, all_cores, size)]

    caches = [cache for core in core_sets for cache in ((1, "Data", core), (1, "Instruction", core), (2, "Unified", core))]
    caches += [(3, "Unified", cpus) for cpus in grouped(cores)]
    places = [(f"0000:{0x1b + 0x10 * i:02x}:00.0", node) for i, node in enumerate(gpus)]
    return FakeMachine(core_sets, dict(enumerate(grouped(nodes * per_node))), dict(enumerate(grouped(per_node))),
                       caches, places)
