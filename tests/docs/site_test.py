#!/usr/bin/env python3
"""The documents as a site (scripts/site): every link leads somewhere, and nothing comes from elsewhere."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import CACHE, ROOT  # noqa: E402

MKDOCS = os.path.join(CACHE, "py-docs", "bin", "mkdocs")


@unittest.skipUnless(os.access(MKDOCS, os.X_OK), f"no mkdocs at {MKDOCS}: scripts/setup installs it")
class Site(unittest.TestCase):
    def build(self, docs):
        """The status and the words of mkdocs, and the folder with the site."""
        folder = tempfile.mkdtemp(prefix="ddprun-site-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with open(os.path.join(ROOT, "mkdocs.yml"), encoding="utf-8") as source:
            config = source.read().replace("docs_dir: docs", f"docs_dir: {docs}").replace("scripts/lib", f"{ROOT}/scripts/lib")
        with open(os.path.join(folder, "mkdocs.yml"), "w", encoding="utf-8") as sink:
            sink.write(config)
        result = subprocess.run([MKDOCS, "build", "--strict", "-f", os.path.join(folder, "mkdocs.yml"), "-d",
                                 os.path.join(folder, "site")], capture_output=True, text=True, check=False)
        return result.returncode, result.stderr, os.path.join(folder, "site")

    def test_builds_and_needs_nobody_else(self):
        status, words, site = self.build(os.path.join(ROOT, "docs"))
        self.assertEqual(0, status, words)
        pages = glob.glob(os.path.join(site, "**", "*.html"), recursive=True)
        self.assertIn(os.path.join(site, "tutorials", "first-run.html"), pages)
        for page in pages:
            with open(page, encoding="utf-8") as source:
                text = source.read()
            self.assertEqual([], re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*', text), page)
        with open(os.path.join(site, "index.html"), encoding="utf-8") as source:
            self.assertIn('href="LOGS.html"', source.read())

    def test_a_link_to_nowhere_is_an_error(self):
        """Negative control."""
        folder = tempfile.mkdtemp(prefix="ddprun-docs-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        docs = shutil.copytree(os.path.join(ROOT, "docs"), os.path.join(folder, "docs"))
        with open(os.path.join(docs, "INSTALL.md"), "a", encoding="utf-8") as sink:
            sink.write("\n[lost](LOGS.md#no-such-heading)\n")
        status, words, _ = self.build(docs)
        self.assertNotEqual(0, status)
        self.assertIn("no-such-heading", words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
