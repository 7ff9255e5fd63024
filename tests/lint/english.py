"""Constructions that a native reader stumbles over (docs/STYLE.md, Words), in comments, documents and texts.

english.py [FOLDER…] lists them.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from tree import Finding, Tree  # noqa: E402

# The page on style quotes what is refused; golden texts and others' words aren't ours.
_LEFT_OUT = ("docs/STYLE.md", "tests/lint/", "tests/unit/launcher/advice/messages.txt", "LICENSE")
# A relative "who" needs a person in front of it.
_PERSON = (r"(?:users?|operators?|persons?|people|readers?|authors?|owners?|engineers?|admins?|developers?|someone"
           r"|anyone|everyone|somebody|anybody|everybody|nobody|those|colleagues?|strangers?|newcomers?|you|we|one"
           r"|reviewers?|maintainers?|writers?|friends?|root|attackers?|members? of a team)")
_REFUSED = [
    (re.compile(r"\b(?:whoever|whose)\b|(?<!\w)(?<!`)who\b(?! am i)", re.I), "name the noun: 'who' is for people"),
    (re.compile(r"\bwhom\b", re.I), "name the noun: 'whom' is for people"),
    (re.compile(r"\bwhat\b[^.;:]{0,40}\bcomes? to\b", re.I), "say which value"),
    (re.compile(r"\bof which\b"), "name the noun again, in a sentence of its own"),
    (re.compile(r"\bmend(?:s|ed|ing)?\b", re.I), "fix, repair"),
    (re.compile(r"\b(?:tells?|told)\b(?! apart|\(|\.)", re.I), "programs report, print, notify; 'tell' needs a person"),
    (re.compile(r"\bwhyever\b|\bin vain\b|\bas it is\b(?! (?:also|not|now|in|the|a|called|done|used))"),
     "say it in ordinary words"),
    (re.compile(r"\byet\b(?! another)"), "'still', or say what hasn't happened"),
]
_BEFORE_WHO = re.compile(_PERSON + r",? $", re.I)
# "a file whose name" is English; "whose name it is" isn't.
_BARE_WHOSE = re.compile(r"(?:^|[,;:(—-] ?|\b(?:of|to|by|from|in|on|for|with|at|is|are|was|and|or|knows?|says?|see|than|as"
                         r"|about|that|which|where|what)) ?$", re.I)
_NEGATION = re.compile(r"\b(?:no|not|none|never|nobody|nothing|neither|nor|without|cannot|can't)\b|n't\b", re.I)
_TELLER = re.compile(r"\b(?:you|we|i|they|user|users|people|somebody|nobody|operator|reader)\b[^.;:]{0,20}$", re.I)
# A comment's first sentence has a subject that can be found without the code below it.
_PRONOUN = re.compile(r"(?:It|Its|They|That|Those|Neither|Both|Of)\b(?! (?:is|are|of|the) (?:means|say))")
_ONE_WORD = re.compile(r"[A-Z][a-z]+\.?$")


def refused(text):
    """(what, why) of each refused construction in a passage of prose."""
    found = []
    for pattern, why in _REFUSED:
        for match in pattern.finditer(text):
            before = text[:match.start()]
            word = match.group().lower()
            if word in ("who", "whom") and _BEFORE_WHO.search(before):
                continue
            if word == "whose" and not _BARE_WHOSE.search(before):
                continue
            if word == "yet" and _NEGATION.search(before[-80:]):
                continue
            if word in ("tell", "tells", "told") and _TELLER.search(before):
                continue
            found.append((match.group(), why))
    return found


def passages(path, text, raw=False):
    """(line, prose, whether it is a comment) of a file: comments that belong together are one passage.

    `raw`: with the code that stands in backticks in documents.
    """
    if path.endswith(".md"):
        yield from _paragraphs(text, raw)
    elif path.endswith((".h", ".cc", ".proto", ".in")):
        yield from _comments(text, r"^(?P<code>(?:[^\"/]|\"(?:\\.|[^\"\\])*\"|/(?!/))*)//+ ?(?P<prose>.*)$")
        yield from _literals(text)
    elif path.endswith((".py", ".sh", ".cmake", "CMakeLists.txt")):
        yield from _comments(text, r"^(?P<code>(?:[^\"'#]|\"[^\"]*\"|'[^']*')*)#+ ?(?P<prose>.*)$")
        if path.endswith(".py"):
            for match in re.finditer(r'^[ \t]*"""(.*?)"""', text, re.S | re.M):
                yield text.count("\n", 0, match.start()) + 1, match.group(1).strip(), False
            yield from _literals(re.sub(r'""".*?"""', lambda m: "\n" * m.group().count("\n"), text, flags=re.S))


def _paragraphs(text, raw):
    number, lines, fenced = 1, [], False
    for index, line in enumerate(text.splitlines() + [""], start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        code = fenced or not line.strip() or (line.startswith("    ") and not lines)
        if code or re.match(r"\s*([-*|#]|\d+\.)", line):
            if lines:
                yield number, " ".join(lines) if raw else re.sub(r"`[^`]*`", "`code`", " ".join(lines)), False
            number, lines = index, [] if code else [line]
        else:
            lines.append(line)


def _comments(text, pattern):
    pattern = re.compile(pattern)
    number, lines, alone = 1, [], True
    for index, line in enumerate(text.splitlines() + [""], start=1):
        match = pattern.match(line) if ("//" in line or "#" in line) and not line.startswith("#!") else None
        own = match is not None and not match.group("code").strip()
        if lines and not own:
            yield number, " ".join(lines), alone
            lines = []
        if match is None or re.search(r"NOLINT|clang-format|noqa|fmt:", match.group("prose")):
            continue
        if own:
            if not lines:
                number, alone = index, True
            lines.append(match.group("prose").strip())
        else:
            yield index, match.group("prose").strip(), False


def _literals(text):
    """Texts with a blank in them: messages."""
    for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        if match.group(1).count(" ") >= 2:
            yield text.count("\n", 0, match.start()) + 1, match.group(1), False


def findings_of(path, text):
    found = []
    for number, prose, comment in passages(path, text):
        found += [(number, f"'{what}': {why}") for what, why in refused(prose)]
        if comment and _PRONOUN.match(prose):
            found.append((number, f"'{prose[:30]}…': begin with the noun"))
        if comment and _ONE_WORD.match(prose):
            found.append((number, f"'{prose}': a comment of one word"))
    return found


def check(tree):
    """Refused constructions."""
    return [Finding(path, number, text) for path in tree.paths() if not path.startswith(_LEFT_OUT)
            for number, text in findings_of(path, tree.text(path))]


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    findings = check(Tree.from_directory(os.path.abspath(root)))
    wanted = [finding for finding in findings if not sys.argv[1:] or finding.path.startswith(tuple(sys.argv[1:]))]
    print(*wanted, f"{len(wanted)} found", sep="\n")


if __name__ == "__main__":
    main()
