#!/usr/bin/env python3
"""The Debian packages that cpack makes: what is in them, what they need, and that they run where they are unpacked."""

import glob
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from package_case import BUILD, PackageCase  # noqa: E402


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "no dpkg-dev")
class Deb(PackageCase):
    @classmethod
    def setUpClass(cls):
        cls.packages = {}

    def setUp(self):
        super().setUp()
        if not self.packages:
            target = self.path("packages")
            log = self.output("cpack", "-G", "DEB", "-B", target, "-D", "CPACK_COMPONENTS_ALL=program;python", cwd=BUILD)
            self.assertNotIn("CPack Error", log)
            keep = os.path.join(BUILD, "packages")
            shutil.rmtree(keep, ignore_errors=True)
            os.makedirs(keep)
            for path in glob.glob(os.path.join(target, "*.deb")):
                self.packages[self.output("dpkg-deb", "-f", path, "Package").strip()] = shutil.copy(path, keep)

    def field(self, package, name):
        return self.output("dpkg-deb", "-f", self.packages[package], name).strip()

    def test_contents(self):
        self.assertEqual({"ddprun", "python3-ddprun"}, set(self.packages))
        listed = self.output("dpkg-deb", "-c", self.packages["ddprun"])
        files = {line.split()[5]: line.split()[0] for line in listed.splitlines() if not line.startswith("d")}
        licences = {name for name in files if name.startswith("./usr/share/doc/ddprun/copyright/")}
        self.assertIn("./usr/share/doc/ddprun/copyright/libgrpc++-dev", licences, "of what is linked in")
        self.assertEqual({"./usr/bin/ddprun", "./usr/share/man/man1/ddprun.1", "./usr/share/bash-completion/completions/ddprun",
                          "./usr/share/zsh/site-functions/_ddprun", "./usr/share/doc/ddprun/LICENSE",
                          "./usr/share/doc/ddprun/NOTICE"}, set(files) - licences)
        self.assertEqual("-rwxr-xr-x", files["./usr/bin/ddprun"])
        listed = self.output("dpkg-deb", "-c", self.packages["python3-ddprun"])
        self.assertIn("./usr/lib/python3/dist-packages/ddprun/progress.py", listed)
        self.assertNotIn("__pycache__", listed)

    def test_needs_are_found_in_the_program(self):
        """By dpkg-shlibdeps: nothing but glibc; and this machine can meet them."""
        self.assertRegex(self.field("ddprun", "Depends"), r"^libc6 \(>= [0-9.]+\)$")
        self.assertEqual("amd64", self.field("ddprun", "Architecture"))
        self.assertEqual("all", self.field("python3-ddprun", "Architecture"))
        if shutil.which("apt-get"):
            text = self.output("apt-get", "install", "--simulate", "--no-install-recommends", *self.packages.values())
            self.assertIn("Inst ddprun", text)

    def test_runs_from_a_fresh_root(self):
        root = self.path("root")
        for path in self.packages.values():
            self.output("dpkg-deb", "-x", path, root)
        ddprun = os.path.join(root, "usr", "bin", "ddprun")
        environment = {**os.environ, "PYTHONPATH": os.path.join(root, "usr/lib/python3/dist-packages"),
                       "PYTHON_EXEC": sys.executable}
        self.assertRegex(self.output(ddprun, "--version"), r"^ddprun \d+\.\d+\.\d+\ncommit [0-9a-f]+.*\nneeds glibc 2\.\d+\n")
        self.assert_trains(ddprun, env=environment)
        script = self.write("marks.py", "import ddprun\nddprun.mark(ddprun.Phase.TRAIN, 1)\nprint(ddprun.stop_at(2))\n")
        self.assertIn("False", self.output(ddprun, "--standalone", script, env=environment))


if __name__ == "__main__":
    unittest.main(verbosity=2)
