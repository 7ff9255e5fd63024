#!/usr/bin/env python3
"""mistakes.txt: each first mistake of its tables is made, and answered with the line that stands there."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, BedTestCase, free_port  # noqa: E402
from ports import private_network, silent_port  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
WAITS = "waits"


class Mistake:
    """A row of a table."""

    def __init__(self, chapter, typed, answer, status):
        words, _, self.circumstance = typed.partition("`, ")
        self.chapter, self.typed, self.answer, self.status = chapter, words.strip("`"), answer, status

    def words(self, port):
        return [word.replace("PORT", str(port)) for word in shlex.split(self.typed)[1:]]

    def pattern(self, port):
        """The answer as a regular expression for a whole line."""
        answer = self.answer.replace("PORT", str(port)) if "PORT" in self.typed else self.answer
        parts = answer.split("…")
        return re.compile(r"^(ddprun: |  )" + ".*".join(re.escape(part) for part in parts) + "$", re.MULTILINE)


def mistakes():
    with open(os.path.join(HERE, "mistakes.txt"), encoding="utf-8") as page:
        chapter = ""
        for line in page:
            if line.startswith("## "):
                chapter = line[3:].strip()
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if line.startswith("| `ddprun"):
                yield Mistake(chapter, *cells)


class Mistakes(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.write("train.py", "print('ran')\n")
        self.bed.write("needs_torchx.py", "import torchx\n")
        self.bed.write("open.token", "secret\n", 0o644)
        self.bed.write("run.sh", "#!/bin/bash\necho ran\n", 0o755)
        self.bed.write("strict.sh", "#!/bin/sh -e\necho ran\n", 0o755)
        self.bed.write("main.cc", "int main() { return 0; }\n")
        os.mkdir(self.bed.path("folder"))
        shutil.copy("/bin/true", self.bed.path("program"))
        self.waiters = 0
        self.environment = {**self.bed.environment, "CUDA_VISIBLE_DEVICES": ""}

    def run_to_its_end(self, words, shell=""):
        """`shell`: what the shell does before."""
        before = ["sh", "-c", f'{shell} && exec "$0" "$@"'] if shell else []
        result = subprocess.run([*before, DDPRUN, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                env=self.environment, cwd=self.bed.folder, timeout=PATIENCE, check=False)
        return str(result.returncode), result.stderr

    @staticmethod
    def end(agent):
        agent.signal(signal.SIGTERM)
        agent.wait(PATIENCE)

    def check(self, mistake, port, first=None, shell=""):
        """Makes the mistake; `first`: the node that is there already; `shell`: as in run_to_its_end()."""
        with self.subTest(mistake.typed, circumstance=mistake.circumstance):
            pattern = mistake.pattern(port)
            if mistake.status != WAITS:
                status, text = self.run_to_its_end(mistake.words(port), shell)
                self.assertEqual(mistake.status, status, text)
                self.assertRegex(text, pattern)
                return
            self.waiters += 1
            # A command without a port gets the default one, which other jobs of this machine may use.
            network = [] if "--rdzv_endpoint" in mistake.typed else private_network()
            agent = self.bed.start_process("waiting", [*network, DDPRUN, *mistake.words(port)], env=self.environment,
                                           output=self.bed.path(f"waiting-{self.waiters}.out"))
            self.bed.wait(lambda: pattern.search(agent.text()), pattern.pattern, alive=[agent, *([first] if first else [])])
            self.end(agent)

    def test_the_command_line_and_the_script(self):
        rows = [row for row in mistakes() if row.chapter in ("The command line", "The script")]
        self.assertGreaterEqual(len(rows), 60)
        for row in rows:
            self.check(row, 0)

    def test_limits_of_the_shell(self):
        rows = [row for row in mistakes() if row.chapter == "Limits of the shell"]
        self.assertTrue(rows)
        for row in rows:
            limit = re.search(r"after `(ulimit .*)`", row.circumstance).group(1)
            self.check(row, 0, shell=limit)

    def test_what_is_understood_is_no_mistake(self):
        for words in ("--use_env train.py", "--nproc 2 train.py", "--np 2 train.py", "--logs_specs default train.py", "help"):
            status, text = self.run_to_its_end(words.split())
            self.assertEqual("0", status, text)
            self.assertNotRegex(text, "error|warning")

    def test_ports_and_nodes(self):
        rows = [row for row in mistakes() if row.chapter == "Ports and nodes"]
        self.assertGreaterEqual(len(rows), 10)
        for row in rows:
            if "another program has the port" in row.circumstance:
                self.check_beside_a_program(row)
            elif "PORT" in row.typed:
                self.check_as_second(row)
            else:
                self.check(row, 0)

    def check_beside_a_program(self, row):
        """The row's command, while its port is taken. The port isn't an ephemeral one: the line would say more about those."""
        port, holder = silent_port()
        with holder:
            holder.listen()
            self.check(row, port)

    def check_as_second(self, row):
        """The row's command, once the first node waits for a second one; which hears that there is a difference."""
        port = free_port()
        own = re.search(r"the first has `(.*)`", row.circumstance)
        words = ["--nnodes", "2", "--rdzv_endpoint", f"127.0.0.1:{port}", *(own.group(1).split() if own else ())]
        events = self.bed.path(f"events-{port}.jsonl")
        first = self.bed.start_process("first", [DDPRUN, *words, "--event_log", events, "train.py"], env=self.environment,
                                       output=self.bed.path(f"first-{port}.out"))
        self.bed.wait(lambda: "1 of 2 nodes have joined" in first.text(), "the first node", alive=[first])
        self.check(row, port, first)
        if "token" not in row.typed and "on the same machine" not in row.circumstance:
            self.bed.wait(lambda: "was refused, with this message: " in first.text(), "the warning", alive=[first])
        self.end(first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
