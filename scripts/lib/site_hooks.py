"""mkdocs' hooks: the README is the first page, and links that leave the documents are shown as paths."""

import os
import re

from mkdocs.structure.files import File

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"(!\[[^\]]*\]\()docs/")
# Index pages, which have other names on the site.
_INDEXES = {"docs/README.md": "contents.md", "pictures/README.md": "pictures/pictures.md"}


def on_files(files, config):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as source:
        text = _LINK.sub(_seen_from_docs, source.read())
    files.append(File.generated(config, "index.md", content=_PICTURE.sub(r"\1", text)))
    # GitHub shows an index at its folder's address, which is the README's on the site.
    for folder, name in (("", "contents.md"), ("pictures/", "pictures/pictures.md")):
        with open(os.path.join(ROOT, "docs", folder, "README.md"), encoding="utf-8") as source:
            files.append(File.generated(config, name, content=source.read()))
    return files


def _seen_from_docs(match):
    """A link of the README as one of a page in docs/."""
    words, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match.group(0)
    return f"[{words}]({_INDEXES.get(target) or (target[5:] if target.startswith('docs/') else '../' + target)})"


def on_page_markdown(markdown, page, files, **_):
    """Source files, decisions and other folders' pages are no part of the site: their links become words and the path."""
    folder = os.path.dirname(page.file.src_uri)

    def link(match):
        words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match.group(0)
        if target in _INDEXES:
            return f"[{words}]({_INDEXES[target]})"
        path = os.path.normpath(os.path.join("docs", folder, target.split("#")[0]))
        within = os.path.relpath(path, "docs")
        if files.get_file_from_path(within) is not None and not within.startswith("decisions/"):
            return match.group(0)
        return f"{words} (`{path}`)" if words.strip("`") != path else f"`{path}`"

    return _LINK.sub(link, markdown)
