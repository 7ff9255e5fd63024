#!/usr/bin/env python3
"""A new user: pip install of the wheel that is built here, in an empty environment without a network, then the first run: on this
system and on older and newer ones (roots.py), where the suite e2e runs, too."""

import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import roots  # noqa: E402
from package_case import BUILD, CACHE, ROOT, PackageCase  # noqa: E402

BUILDER = os.path.join(CACHE, "py-wheel", "bin", "python3")
WHEELS = os.path.join(BUILD, "wheels")
WHEEL_BYTES_MAX = 7_000_000
GLIBC = (2, 28)
# Parts of glibc 2.28.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2"}
# What the program may have a copy of (R_X86_64_COPY). environ by each of its names: glibc uses another than programs.
COPIES = {"stdout", "stderr", "stdin", "in6addr_any", "__environ"}
# Files of tests/e2e that need neither torch nor what is built in the tree. Between them: killed workers and agents, two nodes and
# spares, signals, TLS and etcd over TLS, names, the page, doctor, warm starts, records, kernels without newer calls.
SUITES = ("endpoint", "etcd", "programs", "restarts", "service_restart", "shell_limits", "signals",
          "state_dir", "status ServicesPage.test_one_node_has_a_page_too", "tls", "warm")
# Suites that don't depend on the speed of the processor.
AARCH64_SUITES = ("restarts", "signals", "tls")

# System calls that ddprun makes and RHEL 8's kernel lacks: pidfd_send_signal is of Linux 5.1, the others of 5.3, 5.3 and 5.9.
NOT_IN_LINUX_4_18 = [f"{name}=ENOSYS" for name in ("pidfd_send_signal", "pidfd_open", "clone3", "close_range")]


@unittest.skipUnless(os.access(BUILDER, os.X_OK), f"no scikit-build-core at {BUILDER}: scripts/setup installs it")
class WheelCase(PackageCase):
    processor = "x86_64"
    system = ""  # a root of roots.py; "" = this system
    built = {}  # processor: its wheel

    def setUp(self):
        super().setUp()
        # Commands of the system's begin so.
        self.enter = roots.entering(self.system, [ROOT, WHEELS, self.folder]) if self.system else []
        self.python = "/usr/bin/python3" if self.system else sys.executable
        if self.processor not in self.built:
            self.built[self.processor] = self.build()
        self.wheel = self.built[self.processor]
        self.tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.processor}"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("PYTHON", "PIP_", "DDPRUN_"))}
        self.environment["PIP_NO_INDEX"] = "1"

    def build(self):
        folder = os.path.join(WHEELS, self.processor)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        words = [BUILDER, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", folder, ROOT]
        if self.processor != "x86_64":
            enter = roots.entering(roots.CROSS, [ROOT, *roots.cross_folders(BUILDER)])
            words = [*enter, "env", f"DDPRUN_CROSS={self.processor}", *words]
        self.output(*words)
        wheel, = glob.glob(os.path.join(folder, "*.whl"))
        return wheel

    def inside(self, *command, **options):
        """What a command of this system says."""
        return self.output(*self.enter, *command, **{"env": self.environment, **options})

    def install(self):
        """An empty environment with the wheel; its bin folder."""
        self.inside(self.python, "-m", "venv", self.path("venv"))
        folder = self.path("venv", "bin")
        self.inside(os.path.join(folder, "pip"), "install", self.wheel)
        return folder


class Wheel(WheelCase):
    def test_first_run(self):
        folder = self.install()
        self.environment["PATH"] = folder + os.pathsep + os.environ["PATH"]
        self.assertEqual(os.path.join(folder, "ddprun"), shutil.which("ddprun", path=self.environment["PATH"]))
        self.assertRegex(self.inside("ddprun", "--version"), r"^ddprun \d+\.\d+\.\d+\ncommit [0-9a-f]+.*\nneeds glibc 2\.28\n")
        self.assert_trains(*self.enter, "ddprun", env=self.environment, cwd=self.folder)
        script = self.write("main.py", "import ddprun, sys\nddprun.mark(ddprun.Phase.DONE, 1)\n"
                            "print(sys.prefix, 'torch' in sys.modules, flush=True)\n")
        self.assertIn(f"{self.path('venv')} False\n", self.inside("ddprun", "--standalone", script))
        # Also where the environment isn't activated: torchrun runs with the Python that it was installed for.
        outside = {**self.environment, "PATH": os.environ["PATH"]}
        self.assertIn(f"{self.path('venv')} False\n",
                      self.inside(os.path.join(folder, "ddprun"), "--standalone", script, env=outside))
        self.assertRegex(self.inside("ddprun", "env"), r"^ddprun .*, glibc 2\.\d+")
        # A C++ exception, of the library that reads YAML.
        config = self.write("options.yaml", "nproc_per_node: [1\n")
        self.assertIn(f"error: {config}: line 2: end of sequence", self.inside("ddprun", "--config", config, script, status=2))
        self.assertTrue(os.path.exists(self.path("venv", "share", "man", "man1", "ddprun.1")))
        copyrights = os.listdir(self.path("venv", "share", "doc", "ddprun", "copyright"))
        self.assertLessEqual({"libgrpc++-dev", "libprotobuf-dev", "libabsl-dev", "libstdc++6"}, set(copyrights))
        self.inside(os.path.join(folder, "pip"), "uninstall", "-y", "ddprun")
        self.assertFalse(os.path.exists(os.path.join(folder, "ddprun")))


class OtherSystem(Wheel):
    def test_names_are_the_systems(self):
        folder = self.install()
        seconds = 1 if self.processor == "x86_64" else 30
        words = [os.path.join(folder, "ddprun"), "--nnodes", "1", "--rdzv_backend", "c10d",
                 "--rdzv_endpoint", f"{roots.OWN_NAME}:0", "--rdzv_conf", f"join_timeout={seconds}",
                 "--no_python", "sh", "-c", "echo MASTER $MASTER_ADDR"]
        self.assertIn(f"MASTER {roots.OWN_NAME}\n", self.inside(*words))
        if self.processor != "x86_64":
            return
        # Negative control: outside nobody knows that name.
        self.assertIn(f"can't resolve host '{roots.OWN_NAME}'", self.output(*words, env=self.environment, status=1))

    def run_suites(self, suites, ddprun):
        """How many cases of them ran; all must pass."""
        programs = self.path("programs")  # of this system, if the other one can run them
        os.mkdir(programs)
        for name in ("etcd", "etcdctl"):
            path = shutil.which(name)
            if path:
                shutil.copy(path, programs)
                if subprocess.run([*self.enter, os.path.join(programs, name), "--version"], capture_output=True, check=False,
                                  env={**self.environment, "ETCDCTL_API": "2"}).returncode != 0:
                    os.unlink(os.path.join(programs, name))
        environment = {**self.environment, "PYTHONDONTWRITEBYTECODE": "1", "DDPRUN_BIN": ddprun,
                       "PATH": os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin", programs]),
                       "DDPRUN_TEST_SLOWNESS": os.environ.get("DDPRUN_TEST_SLOWNESS", "1")}
        ran = 0
        for suite in suites:
            with self.subTest(suite=suite):
                name, *cases = suite.split()
                text = self.inside(self.python, os.path.join(ROOT, "tests", "e2e", f"{name}_test.py"), *cases, env=environment)
                counts = re.search(r"^Ran (\d+) tests? in .*\n\nOK(?: \(skipped=(\d+)\))?$", text, re.MULTILINE)
                self.assertTrue(counts, text)
                ran += int(counts.group(1)) - int(counts.group(2) or 0)
        return ran

    def test_the_suites_of_whole_programs(self):
        ran = self.run_suites(SUITES, os.path.join(self.install(), "ddprun"))
        print(f"summary: {ran} cases of the suite e2e ran with the wheel on Debian {self.system}", flush=True)
        self.assertGreater(ran, 70)


class Aarch64(OtherSystem):
    """What an emulated processor can show: single nodes, two, killed workers and agents, signals, TLS."""
    processor = "aarch64"

    def test_the_suites_of_whole_programs(self):
        ran = self.run_suites(AARCH64_SUITES, os.path.join(self.install(), "ddprun"))
        print(f"summary: {ran} cases of the suite e2e ran with the wheel for aarch64 on Debian {self.system}", flush=True)
        self.assertGreater(ran, 20)


class BullseyeAarch64(Aarch64):
    system = "bullseye-arm64"


class TrixieAarch64(Aarch64):
    system = "trixie-arm64"


class Bullseye(OtherSystem):
    system = "bullseye"

    def test_with_what_the_kernel_of_rhel_8_has(self):
        seccomp = os.path.join(ROOT, "tests", "support", "seccomp.py")
        ddprun = self.write("ddprun", f"#!/bin/sh\nexec {self.python} {seccomp} {' '.join(NOT_IN_LINUX_4_18)} -- "
                            f"{os.path.join(self.install(), 'ddprun')} \"$@\"\n")
        os.chmod(ddprun, 0o755)
        self.assertGreater(self.run_suites(("programs", "restarts", "signals", "tls", "warm"), ddprun), 50)


class Bookworm(OtherSystem):
    system = "bookworm"


class Trixie(OtherSystem):
    system = "trixie"


del OtherSystem, Aarch64  # are no systems


class ProgramCase(WheelCase):
    def program(self):
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(self.folder)
        program, = glob.glob(self.path("ddprun-*.data", "scripts", "ddprun"))
        return program


class Contents(ProgramCase):
    def test_one_wheel_for_every_python_and_no_library_but_glibc(self):
        self.assertRegex(os.path.basename(self.wheel), rf"^ddprun-\d+\.\d+\.\d+-py3-none-{self.tag}\.whl$")
        self.assertLess(os.path.getsize(self.wheel), WHEEL_BYTES_MAX)
        program = self.program()
        dynamic = self.output("readelf", "--wide", "--dynamic", program)
        needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
        self.assertEqual(set(), {name for name in needed - SYSTEM if not name.startswith("ld-linux-")})
        self.assertIn("libc.so.6", needed)
        self.assertNotIn("RELR", dynamic)  # older loaders pass over such relocations
        print(f"summary: the wheel has {os.path.getsize(self.wheel) / 1e6:.1f} MB, its program "
              f"{os.path.getsize(program) / 1e6:.1f} MB", flush=True)

    def test_nothing_of_a_newer_glibc(self):
        program = self.program()
        wanted = set(re.findall(r"Name: (\S+)  Flags", self.output("readelf", "--wide", "--version-info", program)))
        self.assertIn({"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}[self.processor], wanted)
        versions = {tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in wanted}
        self.assertLessEqual(max(versions), GLIBC)
        # Negative control: the program of this build.
        ours = self.output("readelf", "--wide", "--version-info", os.path.join(BUILD, "bin", "ddprun"))
        self.assertRegex(ours, r"Name: GLIBC_2\.3\d  Flags")

    def test_glibcs_variables_are_one_by_all_their_names(self):
        """Otherwise workers would have no variable of the agent's: Zig's library has one variable for each name."""
        program = self.program()
        relocations = self.output("readelf", "--wide", "--relocs", program)
        copies = re.findall(r"R_(?:X86_64|AARCH64)_COPY +([0-9a-f]+) (\w+)@", relocations)
        self.assertLessEqual({name for _, name in copies}, COPIES)
        places = re.findall(r": ([0-9a-f]{16}) .* (_{0,2}environ)@", self.output("readelf", "--wide", "--dyn-syms", program))
        self.assertEqual({"environ", "_environ", "__environ"}, {name for _, name in places})
        self.assertEqual(1, len({place for place, _ in places}), places)

    def test_auditwheel_says_the_same(self):
        text = self.output(BUILDER, "-m", "auditwheel", "show", self.wheel)
        self.assertIn(f'consistent with the following platform tag: "{self.tag}"', " ".join(text.split()))


class ContentsAarch64(Contents):
    processor = "aarch64"


class Memory(ProgramCase):
    def resident_kb(self, program):
        """The resident memory of an agent with a running worker."""
        with subprocess.Popen([program, "--standalone", "--no_python", "sh", "-c", "echo STARTED; read line"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env=self.environment) as agent:
            self.assertEqual("STARTED\n", agent.stdout.readline())
            with open(f"/proc/{agent.pid}/status", encoding="ascii") as status:
                resident, = re.findall(r"^VmRSS:\s+(\d+) kB$", status.read(), re.MULTILINE)
            agent.communicate("\n")
        return int(resident)

    def test_the_agent_is_no_larger(self):
        """The wheel has no packed relocations, for older loaders; without DropRelocations() its agent was a twelfth larger."""
        program = self.program()
        os.chmod(program, 0o755)
        here, release = (statistics.median(self.resident_kb(each) for _ in range(9))
                         for each in (program, os.path.join(BUILD, "bin", "ddprun")))
        print(f"summary: an agent of the wheel has {here / 1e3:.1f} MB resident, of the release build {release / 1e3:.1f}",
              flush=True)
        self.assertLess(here, 1.05 * release)


if __name__ == "__main__":
    unittest.main(verbosity=2)
