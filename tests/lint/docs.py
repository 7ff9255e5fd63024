"""Links of the documents, and the commands of the README."""

import os
import re
import subprocess

from tree import Finding

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_MENTION = re.compile(
    r"`((?:base|bench|cmake|deploy|docker|docs|examples|launcher|proto|rendezvous|scripts|tests|tools|worker)/[\w./*-]+)`")


def check(tree):
    """Relative links and `paths` in documents that lead nowhere; scripts that the README names."""
    findings = []
    folders = {path.rsplit("/", n)[0] for path in tree.paths() for n in range(1, path.count("/") + 1)}
    for path in tree.paths(suffixes=(".md",)):
        here = os.path.dirname(path)
        for number, line in tree.lines(path):
            for target in _LINK.findall(line):
                if re.match(r"[a-z]+:", target) or target.startswith("#"):
                    continue
                resolved = os.path.normpath(os.path.join(here, target.split("#")[0]))
                if resolved not in tree and resolved not in folders:
                    findings.append(Finding(path, number, f"the link to {target} leads nowhere"))
                elif "#" in target and resolved in tree and \
                        target.split("#")[1] not in anchors(tree.text(resolved)):
                    findings.append(Finding(path, number, f"{resolved} has no heading for #{target.split('#')[1]}"))
            for target in _MENTION.findall(line):
                if "*" not in target and target.rstrip("/") not in tree and target.rstrip("/") not in folders:
                    findings.append(Finding(path, number, f"`{target}` does not exist"))
    return findings


def check_reach(tree):
    """Pages that a reader of the README doesn't reach with two clicks; the decisions are a folder that one opens."""
    reached = {"README.md"}
    for _ in range(2):
        reached |= {target for path in list(reached) if path.endswith(".md") and path in tree for target in _targets(tree, path)}
    pages = [path for path in tree.paths(("docs",), (".md",)) if not path.startswith("docs/decisions/")]
    findings = [Finding(path, 1, "more than two clicks from README.md: name it in docs/README.md") for path in pages
                if path not in reached]
    if "docs/decisions" not in reached:
        findings.append(Finding("README.md", 1, "the decisions are more than two clicks away"))
    return findings


def _targets(tree, path):
    """Where the links of a document lead to, without anchors."""
    links = [target.split("#")[0] for target in _LINK.findall(tree.text(path)) if not re.match(r"[a-z]+:|#", target)]
    return {os.path.normpath(os.path.join(os.path.dirname(path), link)) for link in links}


def anchors(text):
    """GitHub's anchors of a document's headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)
    }


def check_scripts(tree):
    """Shell scripts: shellcheck finds nothing."""
    scripts = [
        path for path in tree.paths()
        if path.endswith(".sh") or re.match(r"#!.*\b(ba)?sh\b", tree.text(path)[:40].split("\n")[0])
    ]
    if not scripts:
        return [Finding("scripts", 0, "no shell script was found: the check is broken")]
    result = subprocess.run(
        ["shellcheck", "--external-sources", "--format=gcc", *scripts], cwd=tree.root, capture_output=True, text=True,
        check=False)
    findings = []
    for line in (result.stdout + result.stderr).splitlines():
        match = re.match(r"([^:]+):(\d+):\d+: (.*)", line)
        findings.append(Finding(match.group(1), int(match.group(2)), match.group(3)) if match else
                        Finding("shellcheck", 0, line))
    return findings
