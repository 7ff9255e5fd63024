#!/usr/bin/env python3
"""The SBOM of a release, in SPDX 2.3: which libraries of others are linked into ddprun, and which files the release consists of.

sbom.py BUILD: prints it for build/release's program, which isn't stripped."""

import datetime
import functools
import glob
import hashlib
import os
import re
import subprocess
import sys
import uuid

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TABLE = os.path.join(ROOT, "cmake", "linked_libraries.txt")
# Symbols that no other file may define: code, data that is written, read-only or zero.
STRONG = re.compile(r"^[0-9a-f]+ [TDRB] (\S+)$", re.MULTILINE)


class SbomError(Exception):
    """Says what of the program isn't known."""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def read(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


def table():
    """{package: (licence, how it gets in)} of cmake/linked_libraries.txt."""
    lines = [line.split() for line in read(TABLE).splitlines() if re.match("[a-z]", line)]
    return {words[0]: (" ".join(words[1:-1]), words[-1]) for words in lines}


def installed(package):
    """(version, source package) of an installed package of Debian's. Errors: SbomError."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version} ${source:Package}\n", package],
                          capture_output=True, text=True, check=False).stdout.split("\n")[0].split()
    if len(told) != 3 or told[0] != "installed":
        raise SbomError(f"{package}, which is linked into ddprun, isn't installed here: apt install {package}")
    return told[1], told[2]


def archives(build):
    """The archives that the linker gets for ddprun, none of this project's."""
    commands = output("ninja", "-C", build, "-t", "commands", "ddprun").splitlines()
    link = next(line for line in reversed(commands) if " -o bin/ddprun " in line)
    named = [re.sub("^-l:", "/usr/lib/x86_64-linux-gnu/", word) for word in link.split() if word.endswith(".a")]
    found = [path for path in dict.fromkeys(named) if path.startswith("/") and os.path.exists(path)]
    return found + glob.glob("/usr/lib/gcc/x86_64-linux-gnu/*/libstdc++.a")[-1:]


@functools.lru_cache(None)
def strong_symbols(path):
    return frozenset(STRONG.findall(output("nm", "--defined-only", path)))


def owners(paths):
    """{archive: its package}."""
    told = output("dpkg-query", "-S", *map(os.path.realpath, paths))
    by_path = {line.split(": ", 1)[1]: line.split(":")[0] for line in told.splitlines()}
    return {path: by_path[os.path.realpath(path)] for path in paths}


def linked_packages(build):
    """The packages whose archives have code in the program."""
    program = strong_symbols(os.path.join(build, "bin", "ddprun"))
    if len(program) < 1000:
        raise SbomError(f"{build}/bin/ddprun has no symbols: it must not be stripped")
    parts = [path for path in archives(build) if strong_symbols(path) & program]
    return set(owners(parts).values())


def components(build):
    """(package, version, source, licence) of each library in the program. Errors: SbomError, for one that the table lacks."""
    known = {package: (*installed(package), licence, how) for package, (licence, how) in table().items()
             if how != "archive" or is_installed(package)}
    linked = {installed(package)[1] for package in linked_packages(build)}
    lacking = linked - {source for _, source, _, _ in known.values()} - {"glibc"}
    if lacking:
        raise SbomError(f"{', '.join(sorted(lacking))}: linked into ddprun, and not in cmake/linked_libraries.txt: its licence "
                        "goes there")
    return [(package, version, source, licence) for package, (version, source, licence, how) in known.items()
            if how != "archive" or source in linked]


def is_installed(package):
    try:
        installed(package)
        return True
    except SbomError:
        return False


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        for piece in iter(lambda: source.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def element(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def document(build, version, commit, files=()):
    """The SBOM as a dictionary. Params: files: paths of what the release consists of."""
    when = output("git", "-C", ROOT, "show", "-s", "--format=%ct", "HEAD").strip()
    program = {"name": "ddprun", "SPDXID": "SPDXRef-ddprun", "versionInfo": version, "downloadLocation": "NOASSERTION",
               "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
               "copyrightText": "Copyright the ddprun authors", "sourceInfo": f"git commit {commit}"}
    packages, relations = [program], [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-ddprun")]
    for package, release, source, licence in components(build):
        packages.append({
            "name": source, "SPDXID": element(source), "versionInfo": release, "supplier": "Organization: Debian",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", "comment": f"Debian's package {package}, linked in",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{source}@{release.replace('+', '%2B')}?arch=source"}]})
        relations.append(("SPDXRef-ddprun", "STATIC_LINK", element(source)))
    listed = []
    for path in files:
        name = os.path.basename(path)
        listed.append({"fileName": f"./{name}", "SPDXID": element(name), "licenseConcluded": "NOASSERTION",
                       "copyrightText": "NOASSERTION", "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(path)}]})
        relations.append((element(name), "GENERATED_FROM", "SPDXRef-ddprun"))
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"ddprun-{version}",
            # The same for the same commit and files.
            "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'ddprun {version} {commit}')}",
            "creationInfo": {"created": datetime.datetime.fromtimestamp(int(when), datetime.timezone.utc)
                             .strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: ddprun scripts/release"]},
            "packages": packages, "files": listed,
            "relationships": [{"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
                              for one, how, other in relations]}


def main():
    for package, version, source, licence in components(sys.argv[1]):
        print(f"{source:<16} {version:<24} {licence} ({package})")


if __name__ == "__main__":
    try:
        main()
    except SbomError as error:
        sys.exit(f"error: {error}")
