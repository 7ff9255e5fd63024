#!/usr/bin/env python3
"""--numa_binding gives each worker the CPUs that torch gives it, on machines of many kinds.

Both read the same folders with another machine's /sys: torch's binding.py itself (torch_binding.py), and the probe and
planner of ddprun (show_binding). What torch answered is recorded as what torchrun shows is (record.py); machines drawn with
another seed than the ordinary one ask torch itself.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
import record  # noqa: E402
from fake_machine import FakeMachine, cpu_list, regular  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SHOW = os.path.join(os.path.dirname(jobs.DDPRUN), "..", "tests", "show_binding")
MODES = ("node", "socket", "exclusive", "core-complex")
ORDINARY_SEED = 11
SEED = int(os.environ.get("DDPRUN_TEST_SEED", ORDINARY_SEED))
RANDOM_MACHINES = 24


def hybrid():
    """Two cores with SMT and four without, which share their L2 caches; no L3."""
    cores = [{0, 1}, {2, 3}, {4}, {5}, {6}, {7}]
    caches = [(1, "Data", core) for core in cores]
    caches += [(2, "Unified", cpus) for cpus in ({0, 1}, {2, 3}, {4, 5, 6, 7})]
    return FakeMachine(cores, {0: set(range(8))}, {0: set(range(8))}, caches,
                       [("0000:01:00.0", -1), ("0000:02:00.0", 0), ("0000:03:00.0", -1)])


def typical():
    """(name, machine, CPUs that may be used; None = all)."""
    snc = regular(2, 2, 1, 4, 2, gpus=(0, 0, 1, 1, 2, 2, 3, 3))
    one_cache = regular(2, 2, 1, 4, 2, gpus=(0, 1, 2, 3))  # sub-NUMA clusters of one L3 for the socket
    one_cache.caches = [c for c in one_cache.caches if c[0] < 3] + [(3, "Unified", p) for p in one_cache.packages.values()]
    epyc = regular(2, 1, 4, 4, 2, gpus=(0, 0, 0, 0, 1, 1, 1, 1))
    six = regular(1, 1, 2, 3, 1, gpus=(0, 0, 0, 0))
    far = regular(1, 2, 1, 2, 1, gpus=(0, 7))
    crowded = regular(1, 1, 1, 2, 2, gpus=(0, 0, 0))
    bare = regular(1, 1, 1, 4, 1, gpus=(0,))
    bare.caches = []
    memory = regular(2, 1, 1, 4, 1, gpus=(0, 1, 2))
    memory.nodes[2] = set()
    return [("two sockets, two nodes each, SMT", snc, None),
            ("the same, cut down", snc, set(range(2, 13)) | {17, 18, 19, 20, 30}),
            ("one node may not be used", snc, set(range(0, 12)) | set(range(16, 28))),
            ("a cache for two nodes", one_cache, None),
            ("AMD core complexes", epyc, None),
            ("complexes of different sizes", epyc, set(range(1, 32)) - {9, 10}),
            ("siblings together", regular(2, 1, 2, 3, 2, (1, 0, 1), "siblings_together"), None),
            ("nodes in turn", regular(2, 2, 1, 3, 2, (0, 1, 2, 3), "nodes_in_turn"), None),
            ("more GPUs than complexes", six, None),
            ("hybrid cores, no NUMA node known", hybrid(), None),
            ("GPU at a node that isn't there", far, None),
            ("fewer cores than GPUs", crowded, None),
            ("no caches known", bare, None),
            ("a node of memory", memory, None)]


def drawn(number):
    """A machine of a seed."""
    rng = random.Random(SEED * 1000 + number)
    sockets, nodes, complexes, cores = (rng.choice(choice) for choice in ((1, 2), (1, 2), (1, 2, 3), (1, 2, 3)))
    gpus = [rng.randrange(-1, sockets * nodes) for _ in range(rng.randint(1, 8))]
    numbering = rng.choice(("threads_last", "siblings_together", "nodes_in_turn"))
    machine = regular(sockets, nodes, complexes, cores, rng.choice((1, 2)), gpus, numbering)
    allowed = None
    if rng.random() < 0.6:
        allowed = set(rng.sample(machine.cpus, rng.randint(1, len(machine.cpus))))
    return f"drawn {number} with DDPRUN_TEST_SEED={SEED}", machine, allowed


def ours(root, allowed, visible=None):
    """{mode: a list of lists of CPUs, or the error's text}."""
    env = {name: value for name, value in os.environ.items()
           if name != "CUDA_VISIBLE_DEVICES" and not name.startswith("HWLOC_")}
    env["HWLOC_FSROOT"] = root
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    result = subprocess.run([SHOW, ",".join(map(str, sorted(allowed)))], env=env, capture_output=True, text=True,
                            check=True, timeout=jobs.PATIENCE)
    found = {}
    for line in result.stdout.splitlines():
        mode, *rest = line.split(" ")
        found[mode] = " ".join(rest) if rest[:1] == ["error:"] else rest
    return found


class Torch:
    """torch's answers: recorded ones, or those of torch itself, which begins when it is asked first."""

    def __init__(self, torchrun):
        self.torchrun = torchrun
        self.anew = record.how_to_record(torchrun, "binding")
        self.answered = {}  # in this run, as the record has them
        self._asked = None

    def answer(self, case, machine, question):
        """The CPUs of every GPU's worker as text, or {"error": type}, for a question of torch_binding.py."""
        key = f"{machine}, {question['mode']}"
        known = {"allowed": cpu_list(question["allowed"]), "gpus": question["gpus"]}
        if contract.MODE in ("ordinary", "ddprun") and (SEED == ORDINARY_SEED or not machine.startswith("drawn")):
            recorded = self._recorded(case, key)
            case.assertEqual(known, {name: recorded[name] for name in known},
                             f"another question than was recorded. {self.anew}")
            return recorded["answer"]
        theirs = self._ask(question)
        known["answer"] = theirs if isinstance(theirs, dict) else [cpu_list(cpus) for cpus in theirs]
        self.answered[key] = known
        if contract.WHOLE_RUN and SEED == ORDINARY_SEED:
            found = record.difference(self._recorded(case, key), known)
            case.assertEqual("", found, f"torch isn't as it was. The record anew: {self.anew}")
        return known["answer"]

    def end(self):
        if self._asked is not None:
            self._asked.communicate(timeout=jobs.PATIENCE)

    def _ask(self, question):
        if self._asked is None:  # one for all: it imports torch
            self._asked = subprocess.Popen([self.torchrun.python, os.path.join(HERE, "torch_binding.py")], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True)
        self._asked.stdin.write(json.dumps(question) + "\n")
        self._asked.stdin.flush()
        return json.loads(self._asked.stdout.readline())

    def _recorded(self, case, key):
        try:
            answers, = record.load(self.torchrun, "binding").values()
            return answers[key]
        except (record.RecordError, KeyError) as error:
            return case.fail(f"{key}: {error}. Write it: {self.anew}")


class SameAsTorch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.torches = [Torch(torchrun) for torchrun in contract.TORCHRUNS]

    @classmethod
    def tearDownClass(cls):
        for torch in cls.torches:
            torch.end()
            if contract.MODE == "record":
                record.store(torch.torchrun, "binding", {"answers": torch.answered}, whole=True)

    def setUp(self):
        # A machine is thousands of small files, which are quick in memory alone.
        self.folder = tempfile.mkdtemp(prefix="ddprun-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(shutil.rmtree, self.folder)

    def compare(self, cases):
        """Returns how many of the bindings, and how many of torch's refusals, are the same."""
        questions, answers = [], []
        for number, (_, machine, allowed) in enumerate(cases):
            root = os.path.join(self.folder, str(number))
            machine.write(root)
            allowed = machine.cpus if allowed is None else sorted(allowed)
            shown = ours(root, allowed)
            for mode in MODES:
                questions.append({"root": root, "mode": mode, "allowed": allowed, "gpus": [gpu for gpu, _ in machine.gpus]})
                answers.append(shown[mode])
        bound = refused = 0
        for number, torch in itertools.product(range(len(questions)), self.torches):
            question, mine = questions[number], answers[number]
            name, machine, _ = cases[number // len(MODES)]
            with self.subTest(machine=name, mode=question["mode"], torch=torch.torchrun.torch):
                theirs = torch.answer(self, name, question)
                if isinstance(theirs, list):
                    self.assertEqual(theirs, mine)
                    bound += 1
                elif self.cured(machine, question):
                    self.assertIsInstance(mine, list)
                else:
                    self.assertIsInstance(mine, str, f"torch: {theirs}, ddprun: {mine}")
                    refused += 1
        return bound, refused

    @staticmethod
    def cured(machine, question):
        """Whether torch fails because another node has no usable CPUs, although each GPU's own node has some."""
        usable = {node for node, cpus in machine.nodes.items() if cpus & set(question["allowed"])}
        return (question["mode"] == "socket" and usable != set(machine.nodes)
                and all(max(node, 0) in usable for _, node in machine.gpus))

    def test_typical_machines(self):
        bound, refused = self.compare(typical())
        self.assertGreater(bound, 30)
        self.assertGreater(refused, 5)

    def test_drawn_machines(self):
        bound, refused = self.compare([drawn(number) for number in range(RANDOM_MACHINES)])
        self.assertGreater(bound, RANDOM_MACHINES)
        self.assertGreater(refused, 0)

    def test_a_comparison_that_must_fail(self):
        # Negative control: torch alone gets another GPU's NUMA node.
        root, other = os.path.join(self.folder, "a"), os.path.join(self.folder, "b")
        regular(1, 2, 1, 2, 1, gpus=(0, 1)).write(root)
        machine = regular(1, 2, 1, 2, 1, gpus=(1, 1))
        machine.write(other)
        question = {"root": other, "mode": "node", "allowed": machine.cpus, "gpus": [gpu for gpu, _ in machine.gpus]}
        for torch in self.torches:
            self.assertNotEqual(torch.answer(self, "the twin", question), ours(root, machine.cpus)["node"])

    def test_chosen_devices(self):
        machine = regular(2, 1, 2, 2, 1, gpus=(0, 0, 1, 1))
        machine.write(self.folder)
        for visible, chosen in (("2,0", (2, 0)), ("GPU-00000003,1", (3, 1)), ("0,9,1", (0,))):
            gpus = [machine.gpus[number][0] for number in chosen]
            questions = [{"root": self.folder, "mode": mode, "allowed": machine.cpus, "gpus": gpus} for mode in MODES]
            for torch in self.torches:
                expected = {question["mode"]: torch.answer(self, f"devices {visible}", question) for question in questions}
                self.assertEqual(expected, ours(self.folder, machine.cpus, visible), visible)


if __name__ == "__main__":
    unittest.main(verbosity=2)
