"""A BedTestCase whose programs are Python's: with torch, accelerate and Lightning, and the shim in their way."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from bed import (  # noqa: E402, F401
    DDPRUN, FRAMEWORKS, LAUNCHERS, ROOT, SLOW, TORCH_PYTHON, WHOLE, Bed, BedTestCase, read_until, torch_ahead, torch_is_there)
from timeline import Process  # noqa: E402

PACKAGE = os.path.join(ROOT, "python")
MISSING = f"no {LAUNCHERS}: run scripts/setup"
# Importing torch takes seconds on a busy machine.
PATIENCE = 120 * SLOW


class ParkedCaller:
    """Runs scripts that import torch, with the shim in their way, as forks of one that has done so: for those whose start is
    beside the point."""

    def __init__(self):
        self._process = subprocess.Popen(
            [LAUNCHERS, os.path.join(HERE, "parked_caller.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"})

    def call(self, **what):
        """The exit status; parked_caller.py says what of."""
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        return int(read_until(self._process.stdout, rb"\n", PATIENCE))

    def close(self):
        self._process.communicate()


class PythonTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment.pop("PYTHON_EXEC", None)
        # As the .pth file of ddprun_torch.enable does, without a change to the environment.
        self.bed.write("sitecustomize.py", "import os\nif os.environ.get('DDPRUN_SHIM') == '1':\n"
                                           "    import ddprun_torch\n    ddprun_torch.install()\n")

    def environment(self, shim=True, env=None):
        return {**self.bed.environment, "PYTHONPATH": f"{self.bed.folder}:{PACKAGE}", "DDPRUN_BIN": DDPRUN,
                "DDPRUN_SHIM": "1" if shim else "0", "OMP_NUM_THREADS": "1", **(env or {})}

    def python(self, name, words, shim=True, interpreter=LAUNCHERS, env=None, **options):
        process = Process(name, [interpreter, *map(str, words)], output=self.bed.path(f"{name}.out"),
                          env=self.environment(shim, env), cwd=self.bed.folder, **options)
        self.bed.agents.append(process)
        return process

    def text_of(self, process, status=0):
        self.assert_status(status, process, PATIENCE)
        return process.text()
