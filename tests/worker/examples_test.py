"""The example programs as users run them: options, files of options, resuming, and beside their counterparts in plain PyTorch."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support")]
from parked import Fork, PythonFork  # noqa: E402
from ports import free_port  # noqa: E402

BIN = Path(os.environ["DDPRUN_EXAMPLES_BIN"])
CACHE = Path(os.environ.get("DDPRUN_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprun")
PYTHON = Path(os.environ.get("DDPRUN_TEST_PYTHON") or CACHE / "py-full/bin/python3")
SAFETENSORS_PYTHON = CACHE / "py-launchers/bin/python3"
TIMEOUT_S = 280
# Also tests that repeat a check with other options.
WHOLE = os.environ.get("DDPRUN_TEST_WHOLE") == "1"
# A text and a model so small that a step takes two milliseconds.
SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--context_length", "16")
# How far the losses of two correct trainings of 20 such steps may be apart that round differently. With u = 2^-24 and
# gradients that are the same, AdamW at a rate of 1e-3 leaves parameters up to 1 apart by 2 u 20 (3 + 1e-3 x 240) = 8e-6
# at most (tests/support/rounding.h); gradients differ in turn, by what no more than doubles that. The loss moves by the
# sum of the sizes of 6,000 gradients, at most 80 times their norm, which is below 1, times that: 1.3e-3.
# Other batches or another seed move it by 1e-2 and more.
ROUNDING = 1.5e-3


class Job:
    """What two workers of one program did."""

    def __init__(self, statuses, errors, outputs, error_files, journal):
        self.statuses, self.errors, self.outputs, self.error_files = statuses, errors, outputs, error_files
        self.journal = journal
        self.losses = [line["loss"] for line in journal]


def environment_of(rank, workers, port, folder):
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, "LOCAL_WORLD_SIZE": workers, "MASTER_PORT": port,
              "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": 1, "TORCHELASTIC_ERROR_FILE": f"{folder}/error.{rank}"}
    return os.environ | {name: str(value) for name, value in places.items()}


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def run(command, *options, workers=2, absent=0, start=subprocess.Popen):
    """Starts the program as torchrun would, all workers but the first `absent`, and waits for its end. `start`: Fork, or
    subprocess.Popen."""
    with tempfile.TemporaryDirectory(prefix="ddprun-examples-") as name:
        folder = Path(name)
        port = free_port()
        processes = []
        for rank in range(absent, workers):
            # Under test is what rank 0 writes; that the others leave the file alone shows in its lines.
            words = [*command, "--journal", folder / "journal", *options]
            with open(folder / f"out.{rank}", "wb") as out, open(folder / f"err.{rank}", "wb") as err:
                processes.append(start([str(word) for word in words], stdout=out, stderr=err,
                                       env=environment_of(rank, workers, port, folder)))
        try:
            statuses = [process.wait(TIMEOUT_S) for process in processes]
        except subprocess.TimeoutExpired:
            ends = [process.poll() for process in processes]
            words = [read(folder / f"err.{rank}")[-2000:] for rank in range(workers)]
            raise AssertionError(f"not all had ended after {TIMEOUT_S} s: {ends}, {words}, "
                                 f"{len(read(folder / 'journal').splitlines())} steps") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
        texts = {kind: [read(folder / f"{kind}.{rank}") for rank in range(workers)] for kind in ("out", "err", "error")}
        journal = [json.loads(line) for line in read(folder / "journal").splitlines()]
        return Job(statuses, texts["err"], texts["out"], texts["error"], journal)


def checkpoints(folder):
    """The names of a run's checkpoints, without their shards, oldest first."""
    return sorted(name for name in os.listdir(f"{folder}/checkpoints") if name.count("-") == 3)


def metadata(path):
    """What a safetensors file says of itself."""
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


class ExampleTest(unittest.TestCase):
    """Cases run `digits` or `char_gpt`, and expect a good end unless they say otherwise."""

    def trained(self, program, *options, start=Fork):
        job = run([BIN / program], *options, start=start)
        self.assertEqual(job.statuses, [0, 0], job.errors)
        self.assertEqual([line["step"] for line in job.journal], list(range(job.journal[0]["step"], job.journal[-1]["step"] + 1)))
        return job

    def assert_near(self, one, other, most):
        self.assertEqual(len(one), len(other))
        self.assertLessEqual(max(abs(a - b) for a, b in zip(one, other)), most)

    def assert_apart(self, one, other, least):
        self.assertGreater(max(abs(a - b) for a, b in zip(one, other)), least)


class OptionsTest(ExampleTest):
    def test_a_bad_file_of_options_ends_every_rank_with_its_reason(self):
        cases = {"batch_size: 8\nbach_size: 3\n": ":2: unknown option 'bach_size'; did you mean batch_size?",
                 "steps: 1\n\nmixed_precision: half\n": ":3: mixed_precision 'half': give one of no, fp16, bf16"}
        for text, reason in cases.items():
            with self.subTest(text), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                job = run([BIN / "char_gpt"], "--config", file.name)
                self.assertEqual(job.statuses, [2, 2])
                for rank in range(2):
                    self.assertIn(f"rank {rank}: ", job.errors[rank])
                    self.assertIn(file.name + reason, job.errors[rank])
                    self.assertIn(file.name + reason, json.loads(job.error_files[rank])["message"]["message"])

    def test_bad_options_are_found_before_anybody_is_waited_for(self):
        """A rank that looked at them after it had met the others would wait for ten minutes, this test for half of that."""
        job = run([BIN / "char_gpt"], "--mixed_precision", "half", absent=1)
        self.assertEqual(job.statuses, [2])
        self.assertIn("--mixed_precision 'half': give one of no, fp16, bf16", job.errors[1])

    def test_a_good_file_of_options_trains_as_the_command_line_does(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"layers": 1, "width": 16, "heads": 2, "context_length": 16, "steps": 3, "seed": 5}, file)
            file.flush()
            from_file = self.trained("char_gpt", "--config", file.name)
        self.assertEqual(from_file.losses, self.trained("char_gpt", *SMALL, "--steps", "3", "--seed", "5").losses)

    def test_what_does_not_fit_together_is_refused(self):
        job = run([BIN / "char_gpt"], "--width", "30", "--heads", "4")
        self.assertEqual(job.statuses, [1, 1])
        self.assertIn("--width 30 is no multiple of --heads 4", job.errors[0])
        job = run([BIN / "char_gpt"], "--data", "/nowhere/text")
        self.assertEqual(job.statuses, [1, 1])
        self.assertIn("can't read the text '/nowhere/text'", job.errors[1])

    def test_help_is_printed(self):
        job = run([BIN / "digits"], "--help", workers=1)
        self.assertEqual(job.statuses, [0])
        for word in ("--gradient_accumulation_steps N", "--mixed_precision no|fp16|bf16", "--config FILE"):
            self.assertIn(word, job.outputs[0])


class SameResultsTest(ExampleTest):
    """Options that must not change what is learned."""

    def test_loading_ahead(self):
        plain = self.trained("digits", "--epochs", "1")
        self.assertEqual(plain.losses, self.trained("digits", "--epochs", "1", "--num_workers", "3").losses)

    def test_accumulated_gradients(self):
        one = self.trained("char_gpt", *SMALL, "--steps", "20", "--batch_size", "12")
        three = self.trained("char_gpt", *SMALL, "--steps", "20", "--batch_size", "4", "--gradient_accumulation_steps", "3")
        self.assert_near(one.losses, three.losses, ROUNDING)
        self.assert_apart(one.losses, self.trained("char_gpt", *SMALL, "--steps", "20", "--batch_size", "4").losses, 1e-2)

    # The next two do the same arithmetic in the same order: the same bits.

    def test_recomputed_activations(self):
        for program, options in (("digits", ("--epochs", "1")), ("char_gpt", (*SMALL, "--steps", "20"))):
            with self.subTest(program):
                plain = self.trained(program, *options)
                recomputed = self.trained(program, *options, "--gradient_checkpointing")
                self.assertEqual(plain.losses, recomputed.losses)
                # Statistics of batch norm too.
                self.assertEqual(plain.outputs[0].splitlines()[-1], recomputed.outputs[0].splitlines()[-1])

    def test_how_gradients_are_bucketed(self):
        """The sum of two ranks' gradients has one order only, and halving is exact."""
        options = ("char_gpt", *SMALL, "--steps", "20")
        plain = self.trained(*options)
        for changed in (("--bucket_cap_mb", "0.01", "--no_gradient_as_bucket_view"), ("--find_unused_parameters",),
                        ("--static_graph", "--comm_hook", "allreduce")):
            with self.subTest(changed):
                self.assertEqual(plain.losses, self.trained(*options, *changed).losses)

    def test_sharing_out_optimizer_and_gradients(self):
        for extra in ((), ("--gradient_accumulation_steps", "2", "--max_grad_norm", "1", "--mixed_precision", "fp16")):
            options = ("char_gpt", *SMALL, "--steps", "20", *extra)
            plain = self.trained(*options)
            for stage in ("1", "2", "3"):
                with self.subTest(stage=stage, extra=extra):
                    self.assert_near(plain.losses, self.trained(*options, "--zero_stage", stage).losses, ROUNDING)


class DifferentResultsTest(ExampleTest):
    """Options that must have an effect."""

    def test_each(self):
        plain = self.trained("digits", "--steps", "12")
        for changed in (("--seed", "2"), ("--lr_scaling", "linear"), ("--warmup_steps", "5"), ("--max_grad_norm", "0.01"),
                        ("--weight_decay", "1"), ("--lr_schedule", "cosine"), ("--mixed_precision", "bf16"),
                        ("--comm_hook", "bf16"), ("--sync_batch_norm",)):
            with self.subTest(changed):
                self.assert_apart(plain.losses, self.trained("digits", "--steps", "12", *changed).losses, 1e-6)
        # A CPU convolves in half precision a hundred times slower than it multiplies.
        options = ("char_gpt", *SMALL, "--steps", "12")
        half = self.trained(*options, "--mixed_precision", "fp16")
        self.assert_apart(self.trained(*options).losses, half.losses, 1e-6)


class ResumeTest(ExampleTest):
    OPTIONS = ("digits", "--lr_schedule", "constant", "--mixed_precision", "bf16")

    def test_an_interrupted_run_goes_on_as_if_nothing_had_been(self):
        whole = self.trained(*self.OPTIONS, "--steps", "40")
        with tempfile.TemporaryDirectory() as folder:
            first = self.trained(*self.OPTIONS, "--steps", "30", "--output_dir", folder)
            elsewhere = self.trained(*self.OPTIONS, "--steps", "40", "--resume_from", folder + "/checkpoints")
            # In the second epoch, with batches in the making.
            second = self.trained(*self.OPTIONS, "--steps", "40", "--output_dir", folder, "--num_workers", "2")
            self.assertIn("resumed at step 30, epoch 1", second.outputs[0])
        self.assertEqual(whole.losses, first.losses + second.losses)
        self.assertEqual(whole.losses, first.losses + elsewhere.losses)

    def test_what_else_has_a_state_goes_on_too(self):
        """The loss scale of fp16, which falls in the first steps; the optimizer's shares."""
        ways = [("--zero_stage", "1"), ("--zero_stage", "2", "--mixed_precision", "fp16"), ("--zero_stage", "3")]
        if WHOLE:
            ways.append(("--mixed_precision", "fp16"))
        for extra in ways:
            with self.subTest(extra), tempfile.TemporaryDirectory() as folder:
                options = ("char_gpt", *SMALL, "--lr_schedule", "constant", *extra)
                whole = self.trained(*options, "--steps", "20")
                first = self.trained(*options, "--steps", "12", "--output_dir", folder)
                second = self.trained(*options, "--steps", "20", "--output_dir", folder)
                self.assertEqual(whole.losses, first.losses + second.losses)

    def test_one_checkpoint_of_another_run_is_where_training_begins(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.trained(*self.OPTIONS, "--steps", "30", "--output_dir", folder, "--checkpoint_every", "10")
            names = checkpoints(folder)
            # The last three, one of them after the evaluation of the first epoch.
            self.assertEqual([int(name[-22:-12]) for name in names], [20, 23, 30])
            second = self.trained(*self.OPTIONS, "--steps", "30", "--resume_from", f"{folder}/checkpoints/{names[0]}")
            self.assertIn("resumed at step 20, epoch 0", second.outputs[0])
            self.assertEqual(first.losses[20:], second.losses)
            # Without that file there is no checkpoint, though others are there.
            os.remove(f"{folder}/checkpoints/{names[0]}")
            job = run([BIN / "digits"], "--resume_from", f"{folder}/checkpoints/{names[0]}", start=Fork)
            self.assertEqual(job.statuses, [1, 1])
            self.assertIn("no rank finds a checkpoint there", job.errors[0])

    def test_latest_wants_one(self):
        with tempfile.TemporaryDirectory() as folder:
            job = run([BIN / "digits"], "--resume_from", "latest", "--output_dir", folder, start=Fork)
            self.assertEqual(job.statuses, [1, 1])
            self.assertIn(f"--resume_from latest: no rank finds a checkpoint in '{folder}/checkpoints'", job.errors[1])
            self.trained(*self.OPTIONS, "--steps", "10", "--output_dir", folder)
            second = self.trained(*self.OPTIONS, "--steps", "20", "--output_dir", folder, "--resume_from", "latest")
            self.assertIn("resumed at step 10", second.outputs[0])
        job = run([BIN / "digits"], "--resume_from", "latest", start=Fork)
        self.assertEqual(job.statuses, [2, 2])
        self.assertIn("give output_dir or checkpoint_dir", job.errors[0])

    def test_resuming_from_where_nothing_is_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            job = run([BIN / "digits"], "--resume_from", folder, start=Fork)
        self.assertEqual(job.statuses, [1, 1])
        self.assertIn(f"--resume_from '{folder}': no rank finds a checkpoint there", job.errors[1])


class SavingTest(ExampleTest):
    def test_the_best_stays_beside_the_newest(self):
        for stage in ("0", "2"):
            with self.subTest(stage=stage), tempfile.TemporaryDirectory() as folder:
                # At this rate some epochs are worse than the one before.
                self.trained("digits", "--epochs", "6", "--learning_rate", "0.05", "--output_dir", folder, "--keep_checkpoints",
                             "1", "--checkpoint_every", "5", "--zero_stage", stage)
                lines = [json.loads(line) for line in read(Path(folder, "metrics.jsonl")).splitlines()]
                figures = {line["step"]: line["evaluation/accuracy"] for line in lines if "evaluation/accuracy" in line}
                best = max(figures.values())
                first_best = min(step for step, figure in figures.items() if figure == best)
                last = max(figures)
                names = checkpoints(folder)
                self.assertEqual([int(name[-22:-12]) for name in names], sorted({first_best, last}))
                self.assertEqual(float(metadata(Path(folder, "checkpoints", names[0]))["score"]), best)
                self.assertEqual(len(os.listdir(f"{folder}/checkpoints")), len(names) * (1 if stage == "0" else 3))

    def test_by_the_clock(self):
        options = ("digits", "--epochs", "1", "--step_delay_ms", "10", "--checkpoint_every", "0", "--keep_checkpoints", "100")
        with tempfile.TemporaryDirectory() as folder:
            self.trained(*options, "--checkpoint_minutes", "0.001", "--output_dir", folder)
            # 23 steps of 10 ms and more: one is due every 60 ms.
            self.assertGreaterEqual(len(checkpoints(folder)), 3)
        with tempfile.TemporaryDirectory() as folder:  # negative control
            self.trained(*options, "--output_dir", folder)
            self.assertEqual(len(checkpoints(folder)), 1)


class MetricsTest(ExampleTest):
    maxDiff = None

    def test_a_run_leaves_its_figures(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job = self.trained("digits", "--epochs", "2", "--max_grad_norm", "1", "--output_dir", folder)
            lines = [json.loads(line) for line in read(folder / "metrics.jsonl").splitlines()]
            self.assertTrue(list(folder.glob("tensorboard/events.out.tfevents.*")))
        records = [line for line in lines if "learning_rate" in line]
        self.assertEqual([line["step"] for line in records], [10, 20, 30, 40, 46])
        for line in records:
            self.assertGreater(line["samples_per_second"], 0)
            self.assertGreater(line["gradient_norm"], 0)
        self.assertEqual([line["step"] for line in lines if "evaluation/accuracy" in line], [23, 46])
        # The banner.
        self.assertIn("global batch: 64 (32 a process × 2)", job.errors[0])
        self.assertEqual(job.errors[1], "")


class LearningTest(ExampleTest):
    def test_digits_are_recognised(self):
        job = self.trained("digits")
        line = job.outputs[0].splitlines()[-1]
        self.assertRegex(line, r"^final accuracy [0-9.]+% on 360 held-out digits")
        self.assertGreaterEqual(float(line.split()[2].rstrip("%")), 97.0)

    @unittest.skipUnless(WHOLE, "scripts/test --all runs it; bench/convergence_bench.py shows more")
    def test_half_precision_learns_as_well(self):
        """bench/convergence_bench.py holds the means of five whole runs to one percent."""
        options = ("digits", "--epochs", "6")
        last = {precision: self.trained(*options, "--mixed_precision", precision).losses[-23:]
                for precision in ("no", "bf16", "fp16")}
        means = {precision: sum(losses) / len(losses) for precision, losses in last.items()}
        self.assertAlmostEqual(means["bf16"] / means["no"], 1, delta=0.05)
        self.assertAlmostEqual(means["fp16"] / means["no"], 1, delta=0.05)


@unittest.skipUnless(SAFETENSORS_PYTHON.exists(), f"no Python with safetensors at {SAFETENSORS_PYTHON}; scripts/setup makes it")
class FineTuneTest(ExampleTest):
    """Weights that Python wrote are where training begins."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-finetune-")
        cls.addClassCleanup(folder.cleanup)
        cls.weights = Path(folder.name) / "digits.safetensors"
        subprocess.run([SAFETENSORS_PYTHON, ROOT / "examples/finetune/pretrain.py", CACHE / "digits/digits.csv.gz", cls.weights],
                       check=True, stdout=subprocess.DEVNULL)

    def accuracy(self, *options):
        job = self.trained("finetune", "--weights", self.weights, *options)
        return float(re.search(r"^final accuracy ([\d.]+)%", job.outputs[0], re.MULTILINE).group(1))

    def test_what_python_learned_helps(self):
        # On 296 digits that neither has seen: 10 % are 30 of them.
        loaded = self.accuracy()
        self.assertGreater(loaded, self.accuracy("--weights", "") + 10)  # negative control: from scratch
        # Frozen, the body is still Python's, in any stage.
        for stage in ("0", "2", "3"):
            self.assertGreater(self.accuracy("--body_rate", "0", "--zero_stage", stage), 75)

    def test_resuming_from_pythons_weights_is_the_same(self):
        for stage in ("0", "2"):
            options = ("finetune", "--zero_stage", stage, "--epochs", "3")
            loaded = self.trained(*options, "--weights", self.weights)
            resumed = self.trained(*options, "--weights", "", "--resume_from", self.weights)
            self.assertIn(f"begins at step 0 with the weights of '{self.weights}'", resumed.outputs[0])
            self.assertEqual(loaded.losses, resumed.losses)
            # Negative control: without them it learns otherwise.
            self.assert_apart(loaded.losses, self.trained(*options, "--weights", "").losses, 1e-2)

    def test_weights_that_are_not_there_or_of_another_model_are_refused(self):
        job = run([BIN / "finetune"], "--weights", "/nowhere.safetensors", start=Fork)
        self.assertEqual(job.statuses, [1, 1])
        self.assertIn("/nowhere.safetensors", job.errors[0])
        job = run([BIN / "finetune"], "--weights", __file__, start=Fork)
        self.assertEqual(job.statuses, [1, 1])
        self.assertIn("examples_test.py", job.errors[1])


@unittest.skipUnless(PYTHON.exists(), f"there is no Python with torch at {PYTHON}; scripts/setup makes it")
class TwinTest(ExampleTest):
    """The same seed, weights and order of samples: the same losses as plain PyTorch DDP."""

    def compare(self, program, *options):
        ours = self.trained(program, *options, "--backend", "gloo", start=subprocess.Popen)
        twin = run([PYTHON, ROOT / f"bench/worker/{program}.py"], *options, start=PythonFork)
        self.assertEqual(twin.statuses, [0, 0], twin.errors)
        # The same kernels in the same order, but for the norm that --max_grad_norm clips by: float losses of about 4, so
        # that this is 200 units in the last place. Seen were two.
        self.assert_near(ours.losses, twin.losses, 1e-4)
        return ours

    def test_char_gpt_over_many_steps(self):
        steps = "200" if WHOLE else "20"
        ours = self.compare("char_gpt", "--steps", steps, "--max_grad_norm", "1", "--warmup_steps", "10")
        if WHOLE:
            self.assertLess(ours.losses[-1], 0.75 * ours.losses[0])
        # Other weights and another order make another curve.
        other = self.trained("char_gpt", "--steps", "5", "--seed", "2")
        self.assert_apart(ours.losses[:5], other.losses, 1e-2)

    def test_digits_over_two_epochs(self):
        self.compare("digits", "--epochs", "2")

    def test_accumulation_and_bf16(self):
        self.compare("char_gpt", *SMALL, "--steps", "30", "--gradient_accumulation_steps", "3", "--mixed_precision", "bf16")


if __name__ == "__main__":
    unittest.main(verbosity=2)
