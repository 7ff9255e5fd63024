"""What has to hold before a release is made (scripts/release)."""

import datetime
import os
import re
import shutil
import subprocess

import sbom
from proto_fields import differences

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()


def numbers(tag):
    return tuple(map(int, tag[1:].split(".")))


def read(*names):
    return sbom.read(os.path.join(ROOT, *names))


def project_version():
    """The version, from the only place that has it."""
    return re.search(r"^project\(ddprun VERSION ([0-9.]+)", read("CMakeLists.txt"), re.MULTILINE).group(1)


def changelog_part(version):
    """The notes of a version: what is under its heading in CHANGELOG.md; "" = nothing."""
    heading = re.search(rf"^## {re.escape(version)} .*$", read("CHANGELOG.md"), re.MULTILINE)
    if heading is None:
        return ""
    return re.split(r"^## ", read("CHANGELOG.md")[heading.end():], maxsplit=1, flags=re.MULTILINE)[0].strip()


class Checks:
    """Runs all checks, prints a line for each, and keeps those that failed. A check returns what it saw, or raises ValueError
    with what is missing."""

    def __init__(self, version, tested, build, builder):
        self.version, self.tested, self.build, self.builder = version, tested, build, builder
        self.tested_text = ""
        self.all = [self.tree, self.version_number, self.tag, self.changelog, self.wire, self.tests, self.builders,
                    self.libraries]
        self.missing = []

    def run(self):
        for check in self.all:
            try:
                print(f"  ok       {check()}")
            except ValueError as error:
                self.missing.append(str(error))
                print(f"  missing  {error}")

    def tree(self):
        changed = git("status", "--porcelain").splitlines()
        if changed:
            raise ValueError(f"{len(changed)} files aren't as committed ({changed[0].split()[-1]}, …): commit or remove them")
        return "the tree is clean"

    def version_number(self):
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            raise ValueError(f"{self.version!r} is no version of three numbers")
        if self.version != project_version():
            raise ValueError(f"CMakeLists.txt has version {project_version()}, not {self.version}: change "
                             "project(ddprun VERSION …)")
        return f"CMakeLists.txt has version {self.version}"

    def tag(self):
        tag = f"v{self.version}"
        if git("tag", "--list", tag) and git("rev-list", "-n", "1", tag) != git("rev-parse", "HEAD"):
            raise ValueError(f"the tag {tag} is of another commit: a released version is never made again, raise it")
        return f"no other commit has the tag {tag}"

    def changelog(self):
        found = re.search(r"^## (\S+) \((.*)\)$", read("CHANGELOG.md"), re.MULTILINE)
        if found is None or found.group(1) != self.version:
            raise ValueError(f"CHANGELOG.md doesn't begin with {self.version}: write its part")
        try:
            datetime.date.fromisoformat(found.group(2))
        except ValueError:
            raise ValueError(f"CHANGELOG.md says {found.group(1)} ({found.group(2)}): give it the day, as 2026-01-31") from None
        if not changelog_part(self.version):
            raise ValueError(f"CHANGELOG.md says nothing of {self.version}")
        return f"CHANGELOG.md has {self.version} of {found.group(2)}, {len(changelog_part(self.version).split())} words"

    def wire(self):
        """Numbers of messages' fields are those of the release before, so that the two may meet in a job."""
        major, own = self.version.split(".", maxsplit=1)[0], f"v{self.version}"
        tags = [tag for tag in git("tag", "--list", f"v{major}.*", "--sort=-version:refname").splitlines()
                if re.fullmatch(r"v\d+\.\d+\.\d+", tag) and numbers(tag) < numbers(own)]
        if not tags:
            return f"no release with the major number {major} has gone before: the wire may be as it likes"
        found = []
        for path in git("ls-tree", "-r", "--name-only", tags[0], "proto/ddprun").splitlines():
            if os.path.exists(os.path.join(ROOT, path)):
                found += differences(git("show", f"{tags[0]}:{path}"), read(path))
            else:
                found.append(f"{path} is gone")
        if found:
            raise ValueError(f"the wire of {tags[0]}: {'; '.join(found)}")
        return f"the wire keeps the numbers of {tags[0]}"

    def tests(self):
        if self.tested is None:
            raise ValueError("what the tests said: run `scripts/test --all`, and name the file with its output by --tested")
        with open(self.tested, encoding="utf-8", errors="replace") as source:
            ends = re.findall(r"^(\d[\d,]* passed, (\d+) failed, \d+ skipped)", source.read(), re.MULTILINE)
        if not ends:
            raise ValueError(f"{self.tested} has no line 'N passed, N failed, N skipped', with which scripts/test ends")
        self.tested_text, failed = ends[-1]
        if failed != "0":
            raise ValueError(f"{self.tested}: {self.tested_text}")
        if os.path.getmtime(self.tested) < int(git("show", "-s", "--format=%ct", "HEAD")):
            raise ValueError(f"{self.tested} is older than the commit: test what is released")
        return f"the tests: {self.tested_text}"

    def builders(self):
        lacking = [name for name in ("cmake", "ninja", "cpack", "dpkg-deb", "dpkg-shlibdeps", "unshare", "nm")
                   if not shutil.which(name)]
        if not os.access(self.builder, os.X_OK):
            lacking.append(self.builder)
        if lacking:
            raise ValueError(f"{', '.join(lacking)}: not here, scripts/setup installs it")
        return "the tools that build packages and wheels are here"

    def libraries(self):
        """What is linked in, as far as there is a program to look into: a release builds it."""
        if not os.path.exists(os.path.join(self.build, "bin", "ddprun")):
            known = sum(sbom.is_installed(package) for package in sbom.table())
            return f"cmake/linked_libraries.txt has {known} packages that are installed here; build/release has no program so far"
        try:
            return f"{len(sbom.components(self.build))} libraries are linked in, with their licences"
        except sbom.SbomError as error:
            raise ValueError(str(error)) from error
