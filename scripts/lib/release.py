#!/usr/bin/env python3
"""scripts/release: checks that a release can be made, and makes its files."""

import argparse
import glob
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import release_image  # noqa: E402
import sbom  # noqa: E402
from release_checks import Checks, changelog_part, git, project_version  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
PIP = [os.path.join(CACHE, "py-wheel", "bin", "python3"), "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps"]
BUILD = os.path.join(ROOT, "build", "release")


class ReleaseError(Exception):
    """Says what didn't build."""


@dataclass
class Artifact:
    """Files of the release that are made together. A command is a list of words; `make` is for what needs none."""
    names: list
    commands: list = field(default_factory=list)
    make: object = None
    is_of = None  # whether a file that is there is of a commit: is_of(path, commit)
    unless: str = ""  # why it can't be made here, and isn't missed


def holds(data, commit):
    """Whether a program is of this commit, and of nothing else (launcher/cli/build_facts.cc.in)."""
    return commit.encode() + b"\0" in data


def wheel_is_of(path, commit):
    with zipfile.ZipFile(path) as wheel:
        return any(holds(wheel.read(name), commit) for name in wheel.namelist() if name.endswith(".data/scripts/ddprun"))


def deb_is_of(path, commit):
    if not os.path.basename(path).startswith("ddprun_"):
        return True  # made with the program's package
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True,
                                                        capture_output=True).stdout)) as package:
        return holds(package.extractfile("./usr/bin/ddprun").read(), commit)


def sdist_is_of(path, commit):
    with tarfile.open(path) as package:
        names = [name for name in package.getnames() if re.fullmatch(r"[^/]+/COMMIT", name)]
        return bool(names) and package.extractfile(names[0]).read().decode().strip() == commit


def image_is_of(path, commit):
    with tarfile.open(path) as image:
        manifest, = json.load(image.extractfile("manifest.json"))
        config = json.load(image.extractfile(manifest["Config"]))["config"]
        return config.get("Labels", {}).get("org.opencontainers.image.revision") == commit


def told(command):
    return shlex.join(word if "\n" not in word else "…" for word in command)


def run(command):
    print("+", told(command), flush=True)
    try:
        ended = subprocess.run(command, cwd=ROOT, check=False).returncode
    except OSError as error:
        raise ReleaseError(str(error)) from error
    if ended != 0:
        raise ReleaseError(f"failed: {told(command)}")


def cross_commands(source, out):
    """The wheel for aarch64: in a root of its own, as tests/packaging/wheel_test.py builds it."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "packaging"))
    import roots  # pylint: disable=import-outside-toplevel
    root = os.path.join(roots.ROOTS, roots.CROSS)
    if os.geteuid() != 0:
        return [], "it is built in a root of its own, which needs root"
    makes = [] if os.path.isdir(root) else [roots.mmdebstrap(roots.CROSS, root)]
    folders = [source, out, *roots.cross_folders(PIP[0])]
    enter = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", roots.ENTER, "sh", root, str(len(folders)), *folders]
    return [*makes, [*enter, "env", "DDPRUN_CROSS=aarch64", *PIP, "-w", out, source]], ""


class Release:
    def __init__(self, version, out):
        self.version, self.out, self.commit = version, out, git("rev-parse", "HEAD")
        # Exactly the commit's files, with its name: for what is built without git.
        self.source = os.path.join(ROOT, "build", "release-source", f"ddprun-{version}")

    def artifacts(self):
        wheel = f"ddprun-{self.version}-py3-none-manylinux_2_28_"
        cross, no_cross = cross_commands(self.source, self.out)
        image = os.path.join(self.out, f"ddprun-{self.version}-image.tar")
        listed = [
            (Artifact([f"ddprun-{self.version}.tar.gz"], [self.sdist_command()], make=self.export), sdist_is_of),
            (Artifact([wheel + "x86_64.whl"], [[*PIP, "-w", self.out, self.source]], make=self.export), wheel_is_of),
            (Artifact([wheel + "aarch64.whl"], cross, make=self.export, unless=no_cross), wheel_is_of),
            (Artifact([f"ddprun_{self.version}_amd64.deb", f"python3-ddprun_{self.version}_all.deb"],
                      [["cmake", "--preset", "release"],
                       ["cmake", "--build", "--preset", "release", "--target", "ddprun", "ddprun_manual"],
                       ["cpack", "-G", "DEB", "-B", self.out, "-D", "CPACK_COMPONENTS_ALL=program;python",
                        "--config", os.path.join(BUILD, "CPackConfig.cmake")]]), deb_is_of),
            (Artifact([os.path.basename(image)], release_image.commands(self.source, image, self.version, self.commit),
                      make=self.export, unless=release_image.why_not()), image_is_of)]
        for artifact, is_of in listed:
            artifact.is_of = is_of
            yield artifact

    def sdist_command(self):
        """scikit-build-core's own hook, as `pip` calls it."""
        program = f"import os; os.chdir({self.source!r}); from scikit_build_core import build; build.build_sdist({self.out!r})"
        return [PIP[0], "-c", program]

    def export(self):
        mark = os.path.join(self.source, "COMMIT")
        if os.path.exists(mark) and sbom.read(mark).strip() == self.commit:
            return
        shutil.rmtree(self.source, ignore_errors=True)
        os.makedirs(self.source)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.source)
        with open(mark, "w", encoding="ascii") as sink:
            sink.write(self.commit + "\n")

    def state(self, artifact):
        """"there": all its files are, of this commit; "old": they are, of another one; "missing"."""
        paths = [os.path.join(self.out, name) for name in artifact.names]
        if not all(map(os.path.exists, paths)):
            return "missing"
        return "there" if all(artifact.is_of(path, self.commit) for path in paths) else "old"

    def build(self, artifact):
        if artifact.make:
            artifact.make()
        try:
            for command in artifact.commands:
                run(command)
        finally:
            shutil.rmtree(os.path.join(self.out, "_CPack_Packages"), ignore_errors=True)
            shutil.rmtree(release_image.STORE, ignore_errors=True)
        if self.state(artifact) != "there":
            raise ReleaseError(f"{', '.join(artifact.names)}: not made, or not of {self.commit}")

    def finish(self, names, tested):
        """The SBOM, the notes, and the sums of all."""
        paths = [os.path.join(self.out, name) for name in names]
        document = sbom.document(BUILD, self.version, self.commit, paths)
        notes = f"{changelog_part(self.version)}\n\nCommit {self.commit}. Tested: {tested}\n"
        for name, text in ((f"ddprun-{self.version}.spdx.json", json.dumps(document, indent=1) + "\n"),
                           (f"ddprun-{self.version}-notes.txt", notes)):
            with open(os.path.join(self.out, name), "w", encoding="utf-8") as sink:
                sink.write(text)
            paths.append(os.path.join(self.out, name))
        with open(os.path.join(self.out, "SHA256SUMS"), "w", encoding="utf-8") as sink:
            for path in sorted(paths):
                sink.write(f"{sbom.sha256(path)}  {os.path.basename(path)}\n")


def show(release, artifacts):
    """What there is, and which commands make the rest."""
    print(f"\nIn {release.out}:")
    for artifact in artifacts:
        state = release.state(artifact)
        said = {"there": "there, of this commit: kept", "old": "there, of another commit: made again", "missing": "made"}[state]
        if artifact.unless and state != "there":
            said = f"left out: {artifact.unless}"
        for name in artifact.names:
            print(f"  {name}: {said}")
        if state != "there" and not artifact.unless:
            for command in artifact.commands:
                print("     ", told(command))
    print(f"  ddprun-{release.version}.spdx.json; its notes, SHA256SUMS: made")


def main():
    parser = argparse.ArgumentParser(prog="scripts/release", add_help=False)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--artifacts")
    parser.add_argument("--tested", metavar="LOG")
    parser.add_argument("version", nargs="?", default=project_version())
    options = parser.parse_args()
    out = os.path.abspath(options.artifacts or os.path.join(ROOT, "build", "releases", options.version))
    release = Release(options.version, out)
    checks = Checks(options.version, options.tested, BUILD, PIP[0])
    print(f"ddprun {options.version}, commit {release.commit}\n")
    checks.run()
    artifacts = list(release.artifacts())
    if options.dry_run:
        show(release, artifacts)
    if checks.missing:
        print(f"\n{len(checks.missing)} of {len(checks.all)} checks failed: the release can't be made yet")
        return 1
    if options.dry_run:
        return 0
    os.makedirs(out, exist_ok=True)
    names, lacking = [], []
    for artifact in artifacts:
        try:
            if release.state(artifact) != "there":
                if artifact.unless:
                    print(f"left out: {', '.join(artifact.names)}: {artifact.unless}")
                    continue
                release.build(artifact)
            names += artifact.names
        except ReleaseError as error:
            lacking.append(f"not built: {', '.join(artifact.names)}: {error}")
    release.finish(names, checks.tested_text)
    print("\n".join(["", *lacking, f"{len(names) + 3} files in {out}; next: docs/RELEASING.md"]))
    return 1 if lacking else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ReleaseError, sbom.SbomError) as error:
        sys.exit(f"error: {error}")
