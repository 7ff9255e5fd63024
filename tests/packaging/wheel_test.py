#!/usr/bin/env python3
"""A new user: pip install of the wheel that is built here, in an empty environment without a network, then the first run."""

import glob
import os
import shutil
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from package_case import BUILD, CACHE, ROOT, PackageCase  # noqa: E402

BUILDER = os.path.join(CACHE, "py-wheel", "bin", "python3")
WHEEL_BYTES_MAX = 12 << 20
# What a Linux of 2023 has in any case (glibc's own).
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "libresolv.so.2"}


@unittest.skipUnless(os.access(BUILDER, os.X_OK), f"no scikit-build-core at {BUILDER}: scripts/setup installs it")
class Wheel(PackageCase):
    wheel = None

    def setUp(self):
        super().setUp()
        if Wheel.wheel is None:
            keep = os.path.join(BUILD, "wheels")
            shutil.rmtree(keep, ignore_errors=True)
            self.output(BUILDER, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", keep, ROOT)
            Wheel.wheel, = glob.glob(os.path.join(keep, "*.whl"))
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("PYTHON", "PIP_", "DDPRUN_"))}
        self.environment["PIP_NO_INDEX"] = "1"

    def install(self):
        """An empty environment with the wheel; its bin folder."""
        self.output(sys.executable, "-m", "venv", self.path("venv"))
        folder = self.path("venv", "bin")
        self.output(os.path.join(folder, "pip"), "install", self.wheel, env=self.environment)
        return folder

    def test_first_run(self):
        folder = self.install()
        self.environment["PATH"] = folder + os.pathsep + os.environ["PATH"]
        self.assertEqual(os.path.join(folder, "ddprun"), shutil.which("ddprun", path=self.environment["PATH"]))
        self.assert_trains("ddprun", env=self.environment, cwd=self.folder)
        script = self.write("main.py", "import ddprun, sys\nddprun.mark(ddprun.Phase.DONE, 1)\n"
                            "print(sys.prefix, 'torch' in sys.modules, flush=True)\n")
        self.assertIn(f"{self.path('venv')} False\n", self.output("ddprun", "--standalone", script, env=self.environment))
        # Also where the environment isn't activated: torchrun runs with the Python that it was installed for.
        outside = {**self.environment, "PATH": os.environ["PATH"]}
        self.assertIn(f"{self.path('venv')} False\n",
                      self.output(os.path.join(folder, "ddprun"), "--standalone", script, env=outside))
        self.assertTrue(os.path.exists(self.path("venv", "share", "man", "man1", "ddprun.1")))
        copyrights = os.listdir(self.path("venv", "share", "doc", "ddprun", "copyright"))
        self.assertLessEqual({"libgrpc++-dev", "libprotobuf-dev", "libabsl-dev", "gcc-12-base"}, set(copyrights))
        self.output(os.path.join(folder, "pip"), "uninstall", "-y", "ddprun", env=self.environment)
        self.assertFalse(os.path.exists(os.path.join(folder, "ddprun")))

    def test_one_wheel_for_every_python_and_no_library_but_glibc(self):
        self.assertRegex(os.path.basename(self.wheel), r"^ddprun-\d+\.\d+\.\d+-py3-none-\w*linux\w*_x86_64\.whl$")
        self.assertLess(os.path.getsize(self.wheel), WHEEL_BYTES_MAX)
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(self.folder)
        program, = glob.glob(self.path("ddprun-*.data", "scripts", "ddprun"))
        dynamic = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
        needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
        self.assertEqual(set(), needed - SYSTEM)
        self.assertIn("libc.so.6", needed)
        print(f"summary: the wheel has {os.path.getsize(self.wheel) / 1e6:.1f} MB, its program "
              f"{os.path.getsize(program) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
