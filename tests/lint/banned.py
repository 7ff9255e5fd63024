"""Calls and habits that the project has replaced, each with its replacement."""

import re

from tree import CODE_FOLDERS, PRODUCTION_FOLDERS, Finding

# (pattern in code without comments and literals, folders, paths where it is allowed, what to do instead)
_CPP = [
    (r"\b(sleep_for|sleep_until)\s*\(|(?<![\w.>:])(sleep|usleep|nanosleep)\s*\(", CODE_FOLDERS, (),
     "wait for the event itself: EventLoop::After, a pidfd, a pipe; tests use a fake clock"),
    (r"\bsystem_clock\b|\bgettimeofday\s*\(|(?<![\w.>:])time\s*\(\s*(NULL|nullptr|0)\s*\)|\bCLOCK_REALTIME\b",
     CODE_FOLDERS, ("base/glibc/later_functions.cc", "tests/unit/base/glibc/"),
     "use base/clock.h (monotonic); for people's eyes absl::Now()"),
    (r"(?<![\w.>:])(::)?kill(pg)?\s*\(", PRODUCTION_FOLDERS, ("launcher/keeper/", "launcher/os/"),
     "a pid may be somebody else's by now: pidfd_send_signal through launcher/keeper"),
    (r"(?<![\w.>:])s?rand\s*\(|\brandom_device\b", CODE_FOLDERS, ("base/rng.cc",), "use base/rng.h with an injected seed"),
    (r"\bstd::regex\b", CODE_FOLDERS, (), "absl/strings, or a parser with tests"),
    (r"(?<![\w.>:])assert\s*\(", CODE_FOLDERS, (), "DDPRUN_CHECK (base/check.h): it stays on in release"),
    (r"(?<![\w.>:])system\s*\(|(?<![\w.>:])popen\s*\(", CODE_FOLDERS, (), "spawn through launcher/keeper, without a shell"),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof)\s*\(", CODE_FOLDERS, (),
     "absl::SimpleAtoi, absl::StrCat, absl::SNPrintF"),
    (r"(?<![\w.>:])(throw)\s+\w", PRODUCTION_FOLDERS, ("worker/torch/",), "return absl::Status"),
    (r"\babsl::SleepFor\b", CODE_FOLDERS, ("worker/torch/session/session.cc", "worker/env/progress_page.cc"),
     "wait for the event itself"),
    (r"#\s*include\s+<(iostream)>", PRODUCTION_FOLDERS, ("examples/",), "base/log.h"),
]
# Names that we made up, with the terms of the field that have taken their place.
_COINAGES = [
    (r"\bLinkExam\w*|\bNetworkExam\w*", "LinkCheck, CheckNetwork"),
    (r"\bExamSeat\b|\bExamTable\b", "ProbeEndpoint, EndpointTable"),
    (r"\bExam(ine|inee|Plan|Place|Verdict)\b", "Check, Participant, ProbePlan, CheckMember, NetworkVerdict"),
    (r"\bTransferDoor\b", "TransferServer"),
    (r"\b(Fake)?Ways?\b|\bWayFacts\b", "Link: from one node to another"),
    (r"\bStrikes?\b", "Injection"),
    (r"\bk?Tell(?!s[A-Z])([A-Z]\w*|\s*\()", "Notify; Report where somebody keeps it"),
    (r"\b(Node|Peer)Looks?\b", "NodeMeasurements, PeerMeasurement"),
]
_ANY_COINAGE = "|".join(pattern for pattern, _ in _COINAGES)
_HEADER_ONLY = [(r"\busing\s+namespace\b", "a using-directive in a header reaches everybody who includes it")]
_PYTHON = [
    (r"\btime\.sleep\s*\(", "wait for the event itself: scripts/lib/timeline.py"),
    (r"\btime\.time\s*\(", "time.monotonic(): wall clocks jump"),
    (r"shell\s*=\s*True", "pass the arguments as a list"),
    (r"^\s*except\s*:", "name the exception"),
]
_SHELL = [(r"(?<![\w./-])sleep\s+[\d.$]", "wait for the event itself, not for some time")]
_CMAKE = [(r'=\\?"\$(<TARGET_FILE|\{CMAKE_\w*_DIR)',
           "a path in a definition hides from ccache what other checkouts compiled: InSourceTree() of tests/support/trees.h")]
_EVERYWHERE = [
    (r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b", "finish it, or file an issue"),
    (r"(?<![\w.])/(work|root|home/\w+|Users/\w+)/", "no paths of one machine in the project"),
]
# Phrases that no native speaker would write, with what they would. They begin with letters, which Python finds ten times sooner
# than what begins with \b.
_PHRASES = [
    (r"for its likes\b", "held so that identical lines can be merged"),
    (r"honoured when given\b", "used if given"),
    (r"takes what nobody says\b", "fills in the options you omit"),
    (r"that mends it\b", "that fixes it"),
    (r"nodes? are here\b", "have joined"),
    (r"are allowed yet\b", "remain"),
    (r"empties their tree\b", "kills leftover child processes"),
    (r"wants? Debian\b", "need only Debian"),
    (r"on 1 nodes\b", "1 node: CountText (rendezvous/core/describe.h)"),
    (r"since (somebody|nobody|everybody|both|each|who|whoever|that one|that is|it doesn't|it isn't|there is no"
     r"|no one|all|one alone|otherwise|else)\b", "because: since is for time"),
    (r"claims? (is|are|that is) honoured\b", "a requested rank is used"),
    (r"in (the )?want of\b", "without"),
    (r"Mended since\b|mended since\b", "fixed since then"),
]
# The interpreter has one name in what a reader types; tests type what users do.
_INTERPRETER = [(r"(?<![\w./-])python(?= -\w| [\w./${}-]+\.py\b)", "python3, as everywhere")]


def check(tree):
    """Banned calls and phrases, unfinished marks and machine paths."""
    return _check_cpp(tree) + _check_lines(tree)


def _lines_with(pattern, text):
    """(number, line) of those in which the pattern is; most files have none, which one look at the whole text tells."""
    if not re.search(pattern, text, re.MULTILINE):
        return []
    return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if re.search(pattern, line)]


def _check_cpp(tree):
    findings = []
    for path in tree.paths(CODE_FOLDERS, (".h", ".cc")):
        code = tree.code(path)
        for pattern, folders, allowed, instead in _CPP:
            if path.split("/")[0] in folders and not path.startswith(allowed or ("\0",)):
                findings += [Finding(path, number, f"'{line.strip()[:60]}' is banned: {instead}")
                             for number, line in _lines_with(pattern, code)]
        for pattern, instead in _COINAGES if _lines_with(_ANY_COINAGE, code) else ():
            findings += [Finding(path, number, f"'{line.strip()[:60]}': the field's word is {instead}")
                         for number, line in _lines_with(pattern, code)]
        for pattern, why in _HEADER_ONLY if path.endswith(".h") else ():
            findings += [Finding(path, number, why) for number, _ in _lines_with(pattern, code)]
    return findings


def _check_lines(tree):
    findings = []
    for path in tree.paths():
        if path.startswith("tests/lint/"):  # its own bad examples
            continue
        # The page on style quotes what is refused.
        rules = _EVERYWHERE + (_PHRASES if path != "docs/STYLE.md" else [])
        if not path.startswith("tests/") and path != "docs/STYLE.md":
            rules += _INTERPRETER
        shebang = tree.text(path)[:40].split("\n")[0]
        if path.endswith(".py"):
            # Examples may be slowed down on purpose, to be watched.
            rules += [rule for rule in _PYTHON if not (path.startswith("examples/") and "sleep" in rule[0])]
        elif path.endswith(".sh") or ("bash" in shebang and shebang.startswith("#!")):
            rules += _SHELL
        elif path.endswith(("CMakeLists.txt", ".cmake")) and path != "tests/support/CMakeLists.txt":
            rules += _CMAKE
        for pattern, instead in rules:
            findings += [Finding(path, number, f"'{line.strip()[:60]}': {instead}")
                         for number, line in _lines_with(pattern, tree.text(path))]
    return findings
