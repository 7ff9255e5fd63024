#!/usr/bin/env python3
"""What holds with each torch from 2.4 on and each Python from 3.8 on: a script that knows nothing of ddprun, its progress, the
module ddprun, a loop that trains through a failure, and torchrun's places in programs.

DDPRUN_TEST_PYTHON is the interpreter with the torch in question; else it is the pinned one's (scripts/test --torch-versions).
"""

import os
import signal
import subprocess
import unittest

from python_bed import PACKAGE, PATIENCE, ROOT, TORCH_PYTHON, PythonTestCase

PYTHON = os.environ.get("DDPRUN_TEST_PYTHON") or TORCH_PYTHON
SUPPORT = os.path.join(ROOT, "tests", "support")
COUNTED = 7  # the phase of steps that ddprun counts by itself

RECORDED = """
import ddprun, mmap, os
import torch.distributed as dist

@ddprun.record
def main():
    dist.init_process_group("gloo")
    ddprun.mark(ddprun.Phase.TRAIN, 5)
    with open(os.environ["DDPRUN_PROGRESS"], "rb") as file:
        word = memoryview(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)).cast("Q")[8]
    os.write(1, ("marked %d %d\\n" % (word >> 56, word & (1 << 56) - 1)).encode())
    dist.barrier()
    raise ValueError("as the last thing")

main()
"""

PLACES = """
import os
os.write(1, ("generation %s\\n" % os.environ.get("DDPRUN_GENERATION")).encode())
"""

LAUNCHES = """
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def add(x, y):
    return x + y

if __name__ == "__main__":
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
                          run_id="versions", max_restarts=0)
    print("results", sorted(elastic_launch(config, add)(40, 2).items()), flush=True)
"""


@unittest.skipUnless(os.access(PYTHON, os.X_OK), f"no {PYTHON}: run scripts/setup")
class Versions(PythonTestCase):
    @classmethod
    def setUpClass(cls):
        told = subprocess.run([PYTHON, "-c", "import platform, torch; print(platform.python_version(), torch.__version__)"],
                              check=True, capture_output=True, text=True).stdout
        python, cls.torch = told.split()
        print(f"summary: torch {cls.torch.split('+')[0]} with Python {python}", flush=True)

    def setUp(self):
        super().setUp()
        self.bed.forget_warm()
        self.bed.environment.update(PYTHON_EXEC=PYTHON, OMP_NUM_THREADS="1")

    def start(self, *words, workers=2, env=None):
        return self.bed.run("job", ["--standalone", "--nproc_per_node", workers, "--max_restarts", 1, "--restart_backoff", 0,
                                    "--event_log", self.bed.events.path, *words], env=env)

    def test_ddp_goes_on_after_a_killed_worker(self):
        job = self.start(os.path.join(SUPPORT, "ddp_worker.py"), self.bed.journal.path, self.bed.folder)
        first = self.bed.workers(1, 2, PATIENCE, alive=[job])
        self.bed.wait(lambda: self.bed.journal.find("saved"), "a checkpoint", PATIENCE, alive=[job])
        self.bed.kill_alone(1)
        second = self.bed.workers(2, 2, PATIENCE, alive=[job])
        self.bed.wait(lambda: len(self.bed.journal.find("begins", generation=2)) == 2, "both", PATIENCE, alive=[job])
        began = self.bed.journal.find("begins", generation=2)
        self.assertGreaterEqual(min(line["step"] for line in began), 5)
        self.assertFalse({line["pid"] for line in first} & {line["pid"] for line in second})
        self.bed.finish(second)
        self.assert_status(0, job, PATIENCE)

    def test_steps_of_an_unmodified_script_are_counted(self):
        job = self.start(os.path.join(SUPPORT, "unmodified_worker.py"), self.bed.journal.path, "plain", 12)
        workers = self.bed.workers(1, 2, PATIENCE, alive=[job])
        self.assertEqual([(COUNTED, 12)] * 2, [(line["phase"], line["step"]) for line in workers])
        self.bed.finish(workers)
        self.assert_status(0, job, PATIENCE)

    def test_the_module_marks_and_records(self):
        script = self.bed.write("recorded.py", RECORDED)
        job = self.bed.run("job", ["--standalone", "--nproc_per_node", 2, script], env={"PYTHONPATH": PACKAGE})
        self.assert_status(1, job, PATIENCE)
        self.assertEqual(2, job.text().count("marked 2 5\n"), job.text())
        self.assertIn("ValueError: as the last thing", job.text())

    def test_a_loop_trains_through_a_failure(self):
        steps = 60
        job = self.start(os.path.join(SUPPORT, "elastic_python.py"), self.bed.journal.path, steps, "evaluate", workers=3)

        def steps_of(rank):
            return self.bed.journal.find("step", rank=rank)
        self.bed.wait(lambda: len(steps_of(1)) >= 10, "ten steps", PATIENCE, alive=[job])
        os.kill(steps_of(1)[-1]["pid"], signal.SIGKILL)
        self.assert_status(0, job, PATIENCE)
        self.bed.follower.refresh()
        self.assertEqual([steps] * 3, [line["step"] for line in self.bed.journal.find("end")])
        self.assertEqual(4, len(self.bed.events.find("worker_started")))

    def test_parts_of_such_a_loop(self):
        for name in ("elastic_parts", "groups_parts"):
            command = [PYTHON, os.path.join(ROOT, "tests", "python", f"{name}.py")]
            parts = self.bed.start_process(name, command, output=self.bed.path(f"{name}.out"), env=self.bed.environment)
            self.assert_status(0, parts, PATIENCE)

    def test_each_collective_gives_what_torchs_own_group_gives(self):
        given = {}
        for group in ("torch", "elastic"):
            script = os.path.join(SUPPORT, "every_collective.py")
            job = self.bed.run(group, ["--standalone", "--nproc_per_node", 3, script, group])
            self.assert_status(0, job, PATIENCE)
            lines = [line.partition(": ") for line in job.text().splitlines() if not line.startswith(("ddprun", "[Gloo]"))]
            given[group] = {name: result for name, _, result in lines if result}
        self.assertGreater(len(given["torch"]), 40)
        works = {name: result for name, result in given["torch"].items() if not result.endswith("Error")}
        self.assertEqual(works, {name: given["elastic"].get(name) for name in works})

    def test_torchruns_places_in_programs_lead_here(self):
        script = self.bed.write("places.py", PLACES)
        text = self.text_of(self.python("module", ["-m", "torch.distributed.run", "--nproc_per_node", 2, script],
                                        interpreter=PYTHON))
        self.assertEqual("generation 1\n" * 2, text)
        text = self.text_of(self.python("launch", [self.bed.write("launches.py", LAUNCHES)], interpreter=PYTHON))
        self.assertIn("results [(0, 42), (1, 42)]\n", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
