"""What users look up by its name is in the documents, and what is there is in the code: rules of restarts, findings of doctor."""

import re

from tree import Finding

# (sources, what stands around a name there, the document, its headings from and to, what stands around a name there)
TABLES = (
    (("rendezvous/core/verdict.cc",), r'return "(\w+)";', "docs/RECOVERY.md", "## Rules", r"(?m)^- `(\w+)`"),
    (("tools/doctor/core/machine_findings.cc", "tools/doctor/core/machine_gpu_findings.cc"),
     r'Severity::k\w+[^"{};]*"([a-z]+(?:_[a-z0-9]+)+)"', "docs/ENV.md", "## `ddprun doctor`",
     r"(?m)^- ([a-z0-9_]+(?:, [a-z0-9_]+)*):"),
)
_OTHERS = {"unknown"}  # of a number that is no rule


def check(tree):
    """Names of the code that their page lacks, and the other way round."""
    findings = []
    for sources, in_code, page, heading, in_page in TABLES:
        if page not in tree:
            continue
        code = "\n".join(tree.text(path) for path in sources if path in tree)
        section = tree.text(page).partition(f"\n{heading}\n")[2].partition("\n## ")[0]
        named = set(re.findall(in_code, code)) - _OTHERS
        listed = {name for names in re.findall(in_page, section) for name in names.split(", ")}
        if not named:
            findings.append(Finding(sources[0], 0, "no name was found: the check is broken"))
        findings += [Finding(sources[0], 0, f"{name} isn't in {page}") for name in sorted(named - listed)]
        findings += [Finding(page, 0, f"{name} isn't in {sources[0]}") for name in sorted(listed - named)]
    return findings
