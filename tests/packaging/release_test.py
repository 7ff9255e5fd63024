#!/usr/bin/env python3
"""scripts/release in a copy of this tree: what it checks, what it keeps, what it makes of files that are built already; and the
commit in `ddprun --version`."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import unittest
import zipfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "lib")]

from package_case import BUILD, CACHE, DDPRUN, ROOT, PackageCase  # noqa: E402

import release_image  # noqa: E402
import sbom  # noqa: E402

SLOW = float(os.environ.get("DDPRUN_TEST_SLOWNESS") or 1)
BUILDER = os.path.join(CACHE, "py-wheel", "bin", "python3")
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]
PASSED = "1,234 passed, 0 failed, 5 skipped\n"


def is_static():
    told = subprocess.run(["readelf", "-d", os.path.join(BUILD, "bin", "ddprun")], capture_output=True, text=True, check=False)
    return told.returncode == 0 and "libgrpc" not in told.stdout


class Copy(PackageCase):
    """This tree's files, new ones too, in a repository of their own; without most of those that a source package lacks."""

    def setUp(self):
        super().setUp()
        self.root = self.path("tree")
        names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True).stdout.split(b"\0")
        for name in filter(None, map(os.fsdecode, names)):
            is_needed = not name.startswith(("tests/", "docs/", "bench/")) or name.startswith("tests/packaging/")
            if is_needed and os.path.exists(os.path.join(ROOT, name)):
                os.makedirs(os.path.join(self.root, os.path.dirname(name)), exist_ok=True)
                shutil.copy(os.path.join(ROOT, name), os.path.join(self.root, name))
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "all")
        self.version = re.search(r"^project\(ddprun VERSION ([0-9.]+)", self.read("CMakeLists.txt"), re.MULTILINE).group(1)

    def git(self, *words):
        return self.output(*GIT, *words, cwd=self.root).strip()

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as source:
            return source.read()

    def change(self, name, old, new):
        text = self.read(name)
        self.assertIn(old, text)
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as sink:
            sink.write(text.replace(old, new, 1))

    def make_ready(self):
        """The changelog has a day, and the tests have passed. Returns the words of a release."""
        heading = re.search(rf"^## {re.escape(self.version)} .*$", self.read("CHANGELOG.md"), re.MULTILINE).group()
        self.change("CHANGELOG.md", heading, f"## {self.version} (2026-12-01)")
        self.git("commit", "-qam", "the day")
        return ["--tested", self.write("tests.log", PASSED), "--artifacts", self.path("out")]

    def release(self, *words, status=0, **options):
        return self.output(os.path.join(self.root, "scripts", "release"), *words, status=status, cwd=self.folder, **options)


@unittest.skipUnless(os.access(BUILDER, os.X_OK), f"no scikit-build-core at {BUILDER}: scripts/setup installs it")
class DryRun(Copy):
    def test_of_a_tree_that_is_ready(self):
        words = self.make_ready()
        begin = time.monotonic()
        text = self.release("--dry-run", *words, self.version)
        self.assertLess(time.monotonic() - begin, 20 * SLOW)
        self.assertEqual(8, text.count("\n  ok  "), text)
        wheel = f"ddprun-{self.version}-py3-none-manylinux_2_28"
        for name in (f"ddprun-{self.version}.tar.gz", f"{wheel}_x86_64.whl", f"{wheel}_aarch64.whl",
                     f"ddprun_{self.version}_amd64.deb", f"python3-ddprun_{self.version}_all.deb",
                     f"ddprun-{self.version}-image.tar"):
            self.assertRegex(text, rf"\n  {re.escape(name)}: (made|left out: )")
        self.assertRegex(text, r"-m pip wheel .*\n")
        self.assertIn("cpack -G DEB", text)
        self.assertFalse(os.path.exists(self.path("out")), "a dry run makes nothing")
        self.assertEqual("", self.git("status", "--porcelain"))

    def missing(self, *words):
        text = self.release("--dry-run", *words, status=1)
        return re.findall(r"\n  missing  (.*)", text)

    def test_names_what_is_missing(self):
        self.assertIn("what the tests said", " ".join(self.missing()))
        words = self.make_ready()
        failed = self.write("failed.log", "17 passed, 1 failed, 0 skipped\n")
        for said, arguments in (("failed.log: 17 passed, 1 failed", ["--tested", failed]),
                                ("has no line 'N passed", ["--tested", self.write("no.log", "")]),
                                (f"CMakeLists.txt has version {self.version}, not 9.9.9", [*words, "9.9.9"]),
                                ("'one' is no version", [*words, "one"])):
            with self.subTest(said=said):
                self.assertIn(said, " ".join(self.missing(*arguments)))
        os.utime(self.path("tests.log"), (1, 1))
        self.assertEqual([f"{self.path('tests.log')} is older than the commit: test what is released"], self.missing(*words))
        os.utime(self.path("tests.log"))
        self.git("tag", f"v{self.version}", "HEAD~1")
        self.assertEqual([f"the tag v{self.version} is of another commit: a released version is never made again, raise it"],
                         self.missing(*words))
        self.git("tag", "-f", f"v{self.version}")
        self.change("CHANGELOG.md", "(2026-12-01)", "(unreleased)")
        missing = self.missing(*words)
        self.assertEqual(2, len(missing), missing)
        self.assertIn("1 files aren't as committed (CHANGELOG.md, …)", missing[0])
        self.assertIn(f"CHANGELOG.md says {self.version} (unreleased): give it the day", missing[1])
        self.assertIn("failed: the release can't be made yet", self.release(*words, status=1))


    def test_names_fields_that_are_others_than_in_the_release_before(self):
        words = self.make_ready()
        before = self.version.split(".")[0] + ".0.0"
        # A later line, which a fix of an earlier one doesn't follow, and a trial are no release before.
        for tag in (before, f"{before}-rc1", self.version.split(".")[0] + ".999.0"):
            self.git("tag", f"v{tag}")
        self.assertIn(f"ok       the wire keeps the numbers of v{before}", self.release("--dry-run", *words))
        wire = "proto/ddprun/rendezvous/v1/rendezvous.proto"
        self.change(wire, "  uint32 protocol_major = 1;", "  uint64 protocol_major = 1;")
        self.change(wire, "  Heartbeat heartbeat = 20;", "  Heartbeat heartbeat = 23;")
        self.change(wire, "OUTCOME_STOPPED = 3", "OUTCOME_OTHER = 3")
        self.change(wire, "  string whole_on = 10;", "  reserved 10;")
        self.change(wire, "message Welcome {", "message Welcome {\n  // New.\n  uint64 more = 100;")
        self.git("commit", "-qam", "another wire")
        os.utime(self.path("tests.log"))
        self.assertEqual([f"the wire of v{before}: AgentMessage.heartbeat = 20 is gone: reserve its number; "
                          "Join.protocol_major = 1 was uint32 and is uint64 protocol_major: give the new field a new number; "
                          "Outcome.OUTCOME_STOPPED = 3 is OUTCOME_OTHER now: give the new value a new number"],
                         self.missing(*words))


@unittest.skipUnless(os.access(BUILDER, os.X_OK), f"no scikit-build-core at {BUILDER}: scripts/setup installs it")
@unittest.skipUnless(is_static(), f"{BUILD} isn't linked statically")
class FromFilesThatAreBuilt(Copy):
    """Programs in them are a few bytes with a commit's name."""

    def setUp(self):
        super().setUp()
        self.words = self.make_ready()
        self.commit = self.git("rev-parse", "HEAD")
        os.makedirs(self.path("out"))
        os.makedirs(os.path.join(self.root, "build"))
        os.symlink(BUILD, os.path.join(self.root, "build", "release"))

    def make_files(self, commit):
        program = b"\0" + commit.encode() + b"\0"
        for processor in ("x86_64", "aarch64"):
            name = f"ddprun-{self.version}-py3-none-manylinux_2_28_{processor}.whl"
            with zipfile.ZipFile(self.path("out", name), "w") as wheel:
                wheel.writestr(f"ddprun-{self.version}.data/scripts/ddprun", program)
        for package, architecture in (("ddprun", "amd64"), ("python3-ddprun", "all")):
            os.makedirs(self.path(package, "DEBIAN"))
            os.makedirs(self.path(package, "usr", "bin"))
            with open(self.path(package, "usr", "bin", "ddprun"), "wb") as sink:
                sink.write(program)
            self.write(f"{package}/DEBIAN/control",
                       f"Package: {package}\nVersion: {self.version}\nArchitecture: {architecture}\nMaintainer: a <a@b>\n"
                       "Description: a\n")
            self.output("dpkg-deb", "-b", "--root-owner-group", self.path(package),
                        self.path("out", f"{package}_{self.version}_{architecture}.deb"))
            shutil.rmtree(self.path(package))
        config = {"config": {"Labels": {"org.opencontainers.image.revision": commit}}}
        with tarfile.open(self.path("out", f"ddprun-{self.version}-image.tar"), "w") as image:
            for name, content in (("manifest.json", [{"Config": "config.json"}]), ("config.json", config)):
                data = json.dumps(content).encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                image.addfile(member, io.BytesIO(data))

    def test_only_the_rest_is_made(self):
        self.make_files(self.commit)
        text = self.release("--dry-run", *self.words)
        self.assertEqual(5, text.count(": there, of this commit: kept"))
        self.assertIn(f"ddprun-{self.version}.tar.gz: made", text)
        text = self.release(*self.words)
        self.assertEqual(1, text.count("\n+ "), "one command, for the source package: " + text)
        self.assertNotIn("deprecated", text)
        out = set(os.listdir(self.path("out")))
        self.assertEqual(9, len(out), out)
        sums = self.output("sha256sum", "--check", "SHA256SUMS", cwd=self.path("out"))
        self.assertEqual(out - {"SHA256SUMS"}, set(re.findall("(.*): OK", sums)))
        with tarfile.open(self.path("out", f"ddprun-{self.version}.tar.gz")) as package:
            names = {name.split("/", 1)[-1] for name in package.getnames()}
            self.assertEqual(self.commit, package.extractfile(f"ddprun-{self.version}/COMMIT").read().decode().strip())
        self.assertLessEqual({"LICENSE", "NOTICE", "launcher/cli/main.cc", "pyproject.toml"}, names)
        with open(self.path("out", f"ddprun-{self.version}-notes.txt"), encoding="utf-8") as source:
            notes = source.read()
        self.assertIn(f"Commit {self.commit}. Tested: {PASSED}", notes)
        self.assertNotIn("## ", notes)
        self.assertGreater(len(notes.split()), 50)
        self.check_sbom(out)

    def test_what_cant_be_made_does_not_end_the_rest(self):
        self.make_files(self.commit)
        packages = [f"ddprun_{self.version}_amd64.deb", f"python3-ddprun_{self.version}_all.deb"]
        for name in packages:
            os.unlink(self.path("out", name))
        os.mkdir(self.path("bin"))
        os.chmod(self.write("bin/cmake", "#!/bin/sh\nexit 1\n"), 0o755)
        text = self.release(*self.words, status=1,
                            env={**os.environ, "PATH": self.path("bin") + os.pathsep + os.environ["PATH"]})
        self.assertIn(f"\nnot built: {', '.join(packages)}: failed: cmake --preset release\n7 files in", text)
        out = set(os.listdir(self.path("out")))
        self.assertEqual(7, len(out), out)
        sums = self.output("sha256sum", "--check", "SHA256SUMS", cwd=self.path("out"))
        self.assertEqual(out - {"SHA256SUMS"}, set(re.findall("(.*): OK", sums)))
        self.check_sbom(out)

    def test_the_image_is_of_debian_12(self):
        self.assertEqual("its programs come from Debian 12", release_image.why_not(self.write("other", "ID=other\n")))
        self.assertNotIn("Debian", release_image.why_not(self.write("bookworm", "VERSION_CODENAME=bookworm\n")))

    def check_sbom(self, out):
        with open(self.path("out", f"ddprun-{self.version}.spdx.json"), encoding="utf-8") as source:
            document = json.load(source)
        packages = {package["name"]: package for package in document["packages"]}
        self.assertLessEqual({"ddprun", "grpc", "protobuf", "abseil", "openssl", "zlib", "re2", "yaml-cpp", "sqlite3",
                              "libuv1", "fmtlib"}, set(packages))
        self.assertEqual(self.version, packages["ddprun"]["versionInfo"])
        installed = self.output("dpkg-query", "-W", "-f", "${Version}", "libgrpc++-dev")
        self.assertEqual(installed, packages["grpc"]["versionInfo"])
        identities = [each["SPDXID"] for each in document["packages"] + document["files"]]
        self.assertEqual(len(identities), len(set(identities)))
        for relation in document["relationships"]:
            self.assertIn(relation["relatedSpdxElement"], identities)
        linked = {each["relatedSpdxElement"] for each in document["relationships"] if each["relationshipType"] == "STATIC_LINK"}
        self.assertEqual(len(packages) - 1, len(linked))
        files = {each["fileName"][2:] for each in document["files"]}
        self.assertEqual(out - {"SHA256SUMS", f"ddprun-{self.version}-notes.txt", f"ddprun-{self.version}.spdx.json"}, files)

    def test_twin_of_another_commit(self):
        self.make_files("0" * 40)
        text = self.release("--dry-run", *self.words)
        made = text.count(": there, of another commit: made again")
        self.assertEqual(5, made + text.count(": left out: "), text)  # the image, but on Debian 12
        self.assertGreater(made, 3)
        self.assertNotIn(": there, of this commit", text)


@unittest.skipUnless(is_static(), f"{BUILD} isn't linked statically")
class Libraries(PackageCase):
    def test_each_that_is_linked_in_has_its_licence(self):
        found = {source for _, _, source, _ in sbom.components(BUILD)}
        self.assertLessEqual({"grpc", "protobuf", "abseil", "openssl", "zlib"}, found)
        self.assertNotIn("hwloc", found)  # loaded when it is needed
        whole = sbom.table()
        self.addCleanup(setattr, sbom, "table", sbom.table)
        sbom.table = lambda: {name: row for name, row in whole.items() if name != "libyaml-cpp-dev"}
        with self.assertRaisesRegex(sbom.SbomError, "yaml-cpp: linked into ddprun, and not in"):
            sbom.components(BUILD)

    def test_no_other_library_is_needed(self):
        dynamic = self.output("readelf", "--wide", "--dynamic", os.path.join(BUILD, "bin", "ddprun"))
        needed = re.findall(r"\(NEEDED\).*\[(.+)\.so", dynamic)
        self.assertIn("libc", needed)
        self.assertEqual(set(), {name for name in needed if not name.startswith("ld-linux")} - {"libc", "libm"})

    def test_parts_that_are_left_out(self):
        names = re.findall(r"^(?:nothing|never) (\w+)$", sbom.read(os.path.join(ROOT, "cmake", "left_out.txt")), re.MULTILINE)
        self.assertGreater(len(names), 20)
        found = set().union(*map(sbom.strong_symbols, sbom.archives(BUILD)))
        self.assertEqual(set(), set(names) - found, "functions that no library has any more")
        defined = self.output("nm", "--defined-only", os.path.join(BUILD, "bin", "ddprun"))
        for part, is_there in (("XdsClient", False), ("RlsLbConfig", False), ("ares_gethostbyname", False),
                               ("AwsExternalAccountCredentials", False), ("alts_tsi_handshaker", False), ("fts5", False),
                               ("grpc_plugin_credentials", False),
                               ("RoundRobin", True), ("NativeClientChannelDNSResolver", True), ("SslCredentials", True),
                               ("sqlite3_step", True)):
            self.assertEqual(is_there, part in defined, part)

    def test_the_notice_names_each(self):
        with open(os.path.join(ROOT, "NOTICE"), encoding="utf-8") as source:
            notice = source.read().lower()
        names = {"libgrpc++-dev": "grpc", "libabsl-dev": "abseil", "libssl-dev": "openssl", "zlib1g-dev": "zlib",
                 "libsqlite3-dev": "sqlite", "nlohmann-json3-dev": "json for modern c++", "libstdc++6": "c++ runtime of gcc",
                 "libuv1-dev": "libuv"}
        for package in set(sbom.table()) - {"libzstd-dev"}:  # OpenSSL of Debian 13 needs it
            self.assertIn(names.get(package) or package.removeprefix("lib").removesuffix("-dev"), notice)


class Commit(Copy):
    def facts(self, root):
        out = self.path("facts.cc")
        self.output("cmake", f"-DROOT={root}", f"-DTEMPLATE={ROOT}/launcher/cli/build_facts.cc.in", f"-DOUT={out}", "-P",
                    os.path.join(ROOT, "cmake", "Commit.cmake"))
        with open(out, encoding="utf-8") as source:
            return dict(re.findall(r'\.(\w+) = "([^"]*)"', source.read()))

    def test_is_gits_or_a_source_packages(self):
        commit = self.git("rev-parse", "HEAD")
        facts = self.facts(self.root)
        self.assertEqual(commit, facts["commit"])
        self.assertRegex(facts["torch"], r"^\d+\.\d+\.\d+$")
        stamp = os.stat(self.path("facts.cc")).st_mtime_ns
        self.facts(self.root)
        self.assertEqual(stamp, os.stat(self.path("facts.cc")).st_mtime_ns, "written anew, so that it is compiled")
        self.change("README.md", "a", "b")
        self.assertEqual(commit + " and changes", self.facts(self.root)["commit"])
        shutil.rmtree(os.path.join(self.root, ".git"))
        self.assertEqual("unknown", self.facts(self.root)["commit"])
        with open(os.path.join(self.root, "COMMIT"), "w", encoding="ascii") as sink:
            sink.write("5d41\n")
        self.assertEqual("5d41", self.facts(self.root)["commit"])

    def test_version_says_it(self):
        lines = self.output(DDPRUN, "--version").splitlines()
        self.assertEqual(4, len(lines), lines)
        self.assertEqual(f"ddprun {self.version}", lines[0])
        self.assertRegex(lines[1], r"^commit ([0-9a-f]{40}( and changes)?|unknown)$")
        asked = self.output("readelf", "--wide", "--version-info", DDPRUN)
        needed = [tuple(map(int, found)) for found in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", asked)]
        if "GLIBC_ABI_DT_RELR" in asked:
            needed.append((2, 36))
        self.assertEqual("needs glibc {}.{}".format(*max(needed)), lines[2])
        self.assertRegex(lines[3], r"^tested with torch \d+\.\d+\.\d+; the workers' store with \d+\.\d+\.\d+ to \d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
