"""Lengths: files, headers, functions, lines."""

import ast
import os
import re

from tree import CODE_FOLDERS, Finding

FILE_LINES_MAX = 500
HEADER_LINES_MAX = 250
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 100
SCRIPT_COLUMNS_MAX = 130
PAGE_COLUMNS_MAX = 150  # but of tables
README_LINES_MAX = 120
SMALL_LINES = 60
SMALL_FILES_MAX = 220
_PRODUCT = ("base", "launcher", "rendezvous", "tools", "worker")

_SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|union|enum|extern\s+\"\")\b", re.DOTALL)


def check(tree):
    """Files, functions and lines that grew too long."""
    findings = []
    for path in tree.paths(CODE_FOLDERS + ("proto",), (".h", ".cc", ".proto", ".py")) + \
            tree.paths(("scripts", ".ci", "docker")):
        findings += _check_file(tree, path)
    for path in tree.paths(CODE_FOLDERS, (".h", ".cc")):
        findings += [
            Finding(path, line, f"function of {length} lines; the most is {FUNCTION_LINES_MAX}: split it")
            for line, length in cpp_functions(tree.code(path)) if length > FUNCTION_LINES_MAX
        ]
    for path in tree.paths(suffixes=(".py",)):
        findings += [
            Finding(path, line, f"function of {length} lines; the most is {FUNCTION_LINES_MAX}: split it")
            for line, length in python_functions(tree.text(path)) if length > FUNCTION_LINES_MAX
        ]
    if "README.md" in tree and len(tree.text("README.md").splitlines()) > README_LINES_MAX:
        findings.append(Finding("README.md", README_LINES_MAX, f"more than {README_LINES_MAX} lines: move it to docs/"))
    return findings + _check_small_files(tree)


def _check_small_files(tree):
    """One idea is one file: a reader opens a dozen files of 20 lines for what one page could show."""
    small = [path for path in tree.paths(_PRODUCT, (".h", ".cc")) if len(tree.text(path).splitlines()) < SMALL_LINES]
    if len(small) <= SMALL_FILES_MAX:
        return []
    return [Finding(small[-1], 1, f"{len(small)} files of the product have fewer than {SMALL_LINES} lines; the most is "
                                  f"{SMALL_FILES_MAX}: move what serves one other file alone into that file")]


def _check_file(tree, path):
    findings = []
    # An explanation above hard code is no reason to split it.
    explained = path.endswith(".cc")
    count = sum(not (explained and line.lstrip().startswith("//")) for line in tree.text(path).splitlines())
    most = HEADER_LINES_MAX if path.endswith(".h") else FILE_LINES_MAX
    if path.endswith(".proto"):
        most = FILE_LINES_MAX
    if count > most:
        findings.append(Finding(path, most, f"{count} lines; the most is {most}: split it"))
    limits = {".md": PAGE_COLUMNS_MAX, ".h": LINE_COLUMNS_MAX, ".cc": LINE_COLUMNS_MAX}
    columns = limits.get(os.path.splitext(path)[1], SCRIPT_COLUMNS_MAX)
    findings += [
        Finding(path, number, f"{len(line)} columns; the most is {columns}")
        for number, line in tree.lines(path) if len(line) > columns and not (path.endswith(".md") and line.startswith("|"))
    ]
    return findings


def cpp_functions(code):
    """(first line, lines) of every function body in code without comments and literals."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", code, flags=re.MULTILINE)
    found = []
    stack = []  # "scope", "initialiser", "body", or the line where a function began
    statement_start = 0
    line = 1
    for position, character in enumerate(code):
        if character == "\n":
            line += 1
        elif character == "{":
            head = code[statement_start:position]
            stack.append(_opened(stack, head, line))
            if stack[-1] != "initialiser":
                statement_start = position + 1
        elif character == "}" and stack:
            top = stack.pop()
            if isinstance(top, int):
                found.append((top, line - top + 1))
            if top != "initialiser":
                statement_start = position + 1
        elif character == ";" and "initialiser" not in stack:
            statement_start = position + 1
    return found


def _opened(stack, head, line):
    """What the brace after `head` opens; see cpp_functions."""
    if any(entry == "body" or isinstance(entry, int) for entry in stack):
        return "body"
    if head[-1:].isalnum() or head[-1:] in ("_", ">"):
        return "initialiser"  # `member_{value}`; the format puts a blank before every other brace
    if _SCOPE.match(head) and not head.rstrip().endswith((")", "const", "override", "noexcept")):
        return "scope"
    return line - head.lstrip().count("\n") if "(" in head else "body"


def python_functions(text):
    return [
        (node.lineno, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
