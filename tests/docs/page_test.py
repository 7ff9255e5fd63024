#!/usr/bin/env python3
"""The status page in Chromium, on what is recorded in docs/pictures and on jobs of a thousand ranks: light and dark, narrow and
wide. The pictures that it takes lie in tests/pictures of the build folder."""

import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import browser  # noqa: E402
import pictures  # noqa: E402
from bed import SLOW  # noqa: E402

KEPT = os.path.join(os.path.dirname(pictures.DDPRUN), "..", "tests", "pictures")
JOB = "document.querySelector('.job') !== null"
# What lies beyond an edge of the screen, or of an element that cuts it off or scrolls.
CLIPPED = """[...document.querySelectorAll("body *:not(svg *)")].filter(element => {
    const box = element.getBoundingClientRect();
    const beyond = box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5;
    const scrolls = getComputedStyle(element).display !== "inline" && element.scrollWidth > element.clientWidth + 1;
    return box.width > 0 && (beyond || scrolls);
}).map(element => `${element.tagName} ${element.className}`)"""
# Words of the curves that lie beyond their picture.
CUT_WORDS = """(() => {
    const whole = document.querySelector(".course").getBoundingClientRect();
    return [...document.querySelectorAll(".course text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1 ||
            box.bottom > whole.bottom + 1;
    }).map(text => text.textContent);
})()"""
# Contrast of what is read against its ground, by WCAG 2.1; 4.5 is what it asks of text.
CONTRASTS = """(() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(c => c / 255)
            .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(document.querySelector(".job")).backgroundColor);
    const of = colour => (Math.max(light(colour), ground) + 0.05) / (Math.min(light(colour), ground) + 0.05);
    const text = [".description", ".reason", "td", ".generations .bad", ".generations .plan", ".badge", ".lags"];
    const drawn = [".course .name", ".course text.bad", ".course text.plan"];
    return Object.fromEntries([...text.map(s => [s, of(getComputedStyle(document.querySelector(s)).color)]),
        ...drawn.map(s => [s, of(getComputedStyle(document.querySelector(s)).fill)])]);
})()"""


def large_job(nodes, workers):
    """A status of so many nodes and workers of each: one node is slow, one silent, and one has a rank that is behind."""
    status = json.loads(pictures.read(pictures.FOLDER, "job.json"))
    job = status["jobs"][0]
    like = job["nodes"][0]
    job["nodes"] = []
    for i in range(nodes):
        gpus = [dict(like["gpus"][0], index=gpu) for gpu in range(workers)]
        ranks = [{"rank": i * workers + local, "phase": "train", "step": 7114} for local in range(workers)]
        job["nodes"].append(dict(like, node_id=f"node{i:04}", hostname=f"node{i:04}", group_rank=i, worker_count=workers,
                                 gpus=gpus, workers=ranks))
    job["nodes"][nodes // 2]["workers"][-1]["step"] = 7001
    job["nodes"][nodes // 3]["step_us"] = 2 * like["step_us"]
    job["nodes"][nodes // 4]["silent_ms"] = 4000
    job["nodes_total"] = nodes
    return status


def setUpModule():
    if browser.CHROMIUM is not None:
        InChromium.chromium = browser.Browser()
        unittest.addModuleCleanup(InChromium.chromium.close)


@unittest.skipIf(browser.CHROMIUM is None, "chromium is not installed")
class InChromium(unittest.TestCase):
    chromium = None

    def serve(self, status=None, curves=None, style=lambda text: text):
        """The address of a page of the recorded job, or of this status and these curves; `style` changes page.css."""
        folder = tempfile.mkdtemp(prefix="ddprun-page-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        for name, given in (("job.json", status), ("curves.json", curves)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as sink:
                sink.write(pictures.read(pictures.FOLDER, name) if given is None else json.dumps(given))

        class Page(pictures.Page):
            def body(self, name):
                text = super().body(name)
                return style(text) if name == "page.css" else text

        Page.folder = folder
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/"

    def value(self, url, expression, width=1100, shown=JOB):
        return self.chromium.value(url, shown, width, expression)


class Shape(InChromium):
    def test_nothing_is_clipped(self):
        url = self.serve()
        for width in (320, 360, 390, 400, 700, 1100, 1600):
            self.assertEqual([[], []], self.value(url, f"[{CLIPPED}, {CUT_WORDS}]", width, pictures.SHOWN), width)

    def test_twin_without_the_style_for_narrow_screens(self):
        url = self.serve(style=lambda text: text.replace("max-width: 40rem", "max-width: 0"))
        self.assertNotEqual([], self.value(url, CLIPPED, 390))

    def test_light_and_dark_narrow_and_wide(self):
        """What is written can be read in each, and the pictures, which are kept, differ."""
        url = self.serve()
        os.makedirs(KEPT, exist_ok=True)
        taken = set()
        for width, theme in pictures.PAGES:
            picture = self.chromium.picture(url, pictures.SHOWN, width, theme == "dark")
            with open(os.path.join(KEPT, pictures.page_name(width, theme)), "wb") as sink:
                sink.write(picture)
            taken.add(picture)
            contrasts = self.chromium.ask(CONTRASTS)
            self.assertEqual({}, {what: contrast for what, contrast in contrasts.items() if contrast < 4.5}, (width, theme))
        self.assertEqual(len(pictures.PAGES), len(taken))


class Course(InChromium):
    """Curves, and what happened."""

    def test_curves_are_there(self):
        names = "[...document.querySelectorAll('.course .name')].map(name => name.textContent)"
        url = self.serve()
        self.assertEqual(["steps/s", "loss", "samples/s", "GPUs busy"], self.value(url, names, shown=pictures.SHOWN))
        # Each goes over the whole width, but for the time before its first step.
        spans = """[...document.querySelectorAll('.course .line')].map(line =>
            line.getBBox().width / document.querySelector('.course .lane').getBBox().width)"""
        for share in self.value(url, spans, shown=pictures.SHOWN):
            self.assertGreater(share, 0.97)

    def test_twin_of_a_service_that_keeps_none(self):
        url = self.serve(curves={"jobs": []})
        self.assertEqual(0, self.value(url, "document.querySelectorAll('.course .line').length"))
        self.assertEqual(4, self.value(url, "document.querySelectorAll('.course rect.run').length"))

    def test_a_curve_that_nobody_tells_of_has_no_lane(self):
        curves = json.loads(pictures.read(pictures.FOLDER, "curves.json"))
        for part in ("latest", "whole"):
            curves["jobs"][0][part]["loss"] = [None] * len(curves["jobs"][0][part]["loss"])
        names = "[...document.querySelectorAll('.course .name')].map(name => name.textContent)"
        self.assertNotIn("loss", self.value(self.serve(curves=curves), names, shown=pictures.SHOWN))

    def test_a_loss_that_is_no_number_is_seen(self):
        curves = json.loads(pictures.read(pictures.FOLDER, "curves.json"))
        for part in ("latest", "whole"):
            curves["jobs"][0][part]["loss"][-1] = "nan"
        found = self.value(self.serve(curves=curves), """[document.querySelector('.course circle.bad title').textContent,
            document.querySelector('.course .value.bad').textContent,
            [...document.querySelectorAll('.figures div')].find(pair => pair.innerText.startsWith('loss')).innerText]""",
                           shown=pictures.SHOWN)
        self.assertEqual(["loss was nan", "nan", "loss\nnan"], found)

    def test_faults_and_plans_have_names_and_looks_of_their_own(self):
        marks = """[...document.querySelectorAll('.course .mark')].map(mark => {
            const line = getComputedStyle(mark.querySelector('line'));
            return {name: mark.querySelector('text').textContent, title: mark.querySelector('title').textContent,
                    colour: line.stroke, width: parseFloat(line.strokeWidth), dashes: line.strokeDasharray,
                    corners: mark.querySelector('polygon').points.length};
        })"""
        gaps = """[...document.querySelectorAll('.course rect.gap')].map(gap => [gap.getAttribute('class'),
            gap.getBoundingClientRect().width >= 3])"""
        colours = """['.generations .plan', '.generations .bad'].map(
            kind => getComputedStyle(document.querySelector(kind)).color)"""
        (fault, lost, growth), gaps, colours = self.value(self.serve(), f"[{marks}, {gaps}, {colours}]", shown=pictures.SHOWN)
        self.assertEqual(["rank 5 on host2: SIGKILL", "host1 lost", "+1 node"], [each["name"] for each in (fault, lost, growth)])
        self.assertIn("worker rank 5 on host2 was killed by SIGKILL (generation 1)", fault["title"])
        self.assertTrue(growth["title"].startswith("planned, 7 min 4 s ago: 1 node joined"), growth["title"])
        self.assertEqual((fault["colour"], 3, "none"), (lost["colour"], lost["corners"], lost["dashes"]))
        self.assertNotEqual(fault["colour"], growth["colour"])
        self.assertEqual(4, growth["corners"])
        self.assertNotEqual("none", growth["dashes"])
        for mark in (fault, lost, growth):
            self.assertGreaterEqual(mark["width"], 2)
        self.assertEqual([["gap bad", True], ["gap bad", True], ["gap plan", True]], gaps)
        self.assertEqual([growth["colour"], fault["colour"]], colours)

    def test_whatever_is_planned(self):
        """Texts as the service writes them; the negative controls are faults."""
        texts = {"host1 is preempted: got SIGUSR1": "host1 preempted", "host1 is drained (new kernel)": "host1 drained",
                 "node b on host1 left: got SIGTERM": "host1 left", "2 nodes joined": "+2 nodes"}
        faults = {"worker rank 3 on h was killed by SIGSEGV": "rank 3 on h: SIGSEGV",
                  "worker rank 3 on h exited with code 1: RuntimeError: 1 node joined no": "rank 3 on h: exit code 1",
                  "worker rank 3 on h hung: no progress in train": "rank 3 on h hung",
                  "the job hung, and which worker held it up isn't known: x": "the job hung",
                  "node b on host1 left: its keeper died": "host1 left", "something else": "something else"}
        expression = f"{json.dumps([*texts, *faults])}.map(text => [isPlanned({{end_reason: text}}), shortName(text)])"
        self.assertEqual([[True, name] for name in texts.values()] + [[False, name] for name in faults.values()],
                         self.value(self.serve(), expression))

    def test_many_faults_are_counted_where_there_is_no_room(self):
        status = json.loads(pictures.read(pictures.FOLDER, "job.json"))
        first = status["jobs"][0]["history"][0]
        status["jobs"][0]["history"] = [
            dict(first, generation=i + 1, began_ms_ago=7380000 - 28000 * i, ended_ms_ago=7380000 - 28000 * (i + 1) + 1000)
            for i in range(256)]
        url = self.serve(status)
        for width in (390, 1100):
            marks, texts, more, cut = self.value(url, f"""[document.querySelectorAll('.course .mark').length,
                document.querySelectorAll('.course .mark text').length,
                [...document.querySelectorAll('.course .scale')].pop().textContent, {CUT_WORDS}]""", width, pictures.SHOWN)
            self.assertEqual(256, marks)
            self.assertEqual(f"{256 - texts} more marks: see Generations", more)
            self.assertEqual([], cut)

    def test_the_last_ten_minutes(self):
        found = self.value(self.serve(), """(() => {
            const ends = () => document.querySelector('.course').textContent.match(/[^%]*ago(?=now)/)[0].slice(-14);
            const before = ends();
            document.querySelector('[data-range=latest]').click();
            return [before, ends(), document.querySelector('[data-range=latest]').getAttribute('aria-pressed')];
        })()""", shown=pictures.SHOWN)
        self.assertTrue(found[0].endswith("2 h 3 min ago"), found)
        self.assertTrue(found[1].endswith("10 min 0 s ago"), found)
        self.assertEqual("true", found[2])


class Nodes(InChromium):
    ROWS = """[...document.querySelectorAll('.nodes tbody tr')].map(
        row => [row.className, ...[...row.cells].map(cell => cell.textContent)])"""

    def test_who_lags_comes_first_with_its_ranks(self):
        rows = self.value(self.serve(), self.ROWS)
        self.assertEqual([["node look", "6–7", "host3", "behind", "7109 to 7114, 5 behind", "0.835"],
                          ["rank", "6", "", "slow", "7114", ""],
                          ["rank", "7", "", "behind", "7109, 5 behind", ""],
                          ["node", "0–1", "host0", "running", "7114", "0.988"]], [row[:6] for row in rows[:4]])
        self.assertEqual(7, len(rows))

    def test_it_lags_as_top_says(self):
        """The same record, the same rule."""
        top = pictures.subprocess.run([pictures.SHOW_TOP, os.path.join(pictures.FOLDER, "job.json"), "100", "30"],
                                      capture_output=True, text=True, check=True).stdout
        told = [line.removeprefix("\x1b[33m").split()[:3] for line in top.splitlines() if " host3 " in line]
        rows = self.value(self.serve(), self.ROWS)
        self.assertEqual([["6", "host3", "slow"], ["7", "host3", "behind"]], told[-2:])
        self.assertEqual([["6", "slow"], ["7", "behind"]], [[row[1], row[3]] for row in rows if row[0] == "rank"])

    def test_twin_where_nobody_lags_there_is_nothing_to_see(self):
        status = json.loads(pictures.read(pictures.FOLDER, "job.json"))
        for node in status["jobs"][0]["nodes"]:
            node["step_us"] = 1000000
            for worker in node["workers"]:
                worker["step"] = 7114
        rows = self.value(self.serve(status), self.ROWS)
        self.assertEqual(["0–1", "2–3", "4–5", "6–7", "–"], [row[1] for row in rows])
        self.assertEqual(0, self.chromium.ask("document.querySelectorAll('.lags, .look').length"))

    def test_ranks_fold_and_unfold_and_stay_so(self):
        found = self.value(self.serve(), """(() => {
            const ranks = () => document.querySelectorAll('tr.rank').length;
            const button = document.querySelectorAll('.fold')[1];
            const counts = [ranks()];
            button.focus();
            button.click();
            counts.push(ranks());
            showJobs(last);
            counts.push(ranks(), document.activeElement === button);
            button.click();
            counts.push(ranks(), button.getAttribute('aria-expanded'));
            return counts;
        })()""")
        self.assertEqual([2, 4, 4, True, 2, "false"], found)

    def test_gpus_of_a_phone_have_their_columns_name(self):
        cells = "[...document.querySelectorAll('td.gpus')].map(cell => [cell.dataset.label, cell.textContent])"
        found = self.value(self.serve(), cells, 390)
        self.assertEqual([["GPUs", "77 %, 135.3 of 160.0 GiB"], ["GPUs", "96 %, 61.0 of 80.0 GiB"]], found[:2])


class AThousandRanks(InChromium):
    def check(self, nodes, workers):
        url = self.serve(large_job(nodes, workers))
        rows = self.value(url, Nodes.ROWS)
        names = [row[2] for row in rows if row[0].startswith("node")]
        self.assertEqual([f"node{i:04}" for i in (nodes // 4, nodes // 2, nodes // 3)], names, "the worst first")
        self.assertIn(["silent", "behind", "slow"], [[row[3] for row in rows if row[0] == "node look"]])
        others = self.chromium.ask("document.querySelector('.others').innerText")
        self.assertIn(f"{nodes - 3} more nodes, {(nodes - 3) * workers} ranks; step 7114; 0.988 steps/s", others)
        ranks = [row[1] for row in rows if row[0] == "rank"]
        behind = nodes // 2 * workers
        self.assertEqual([str(behind + i) for i in range(workers)] if workers > 1 else [], ranks, "where they aren't alike")
        return url

    def test_many_ranks_a_node(self):
        url = self.check(125, 8)
        self.assertEqual([], self.chromium.ask(CLIPPED))
        self.assertEqual([], self.value(url, CLIPPED, 390))
        os.makedirs(KEPT, exist_ok=True)
        with open(os.path.join(KEPT, "page-1000-ranks.png"), "wb") as sink:
            sink.write(self.chromium.picture(url, pictures.SHOWN, 1100, False))

    def test_a_rank_a_node(self):
        self.check(1000, 1)

    def test_it_is_quickly_drawn(self):
        """Folded and unfolded, laid out, at its best of some: what a look a second leaves to others."""
        url = self.serve(large_job(1000, 1))
        script = """(() => {
            const times = [];
            for (let i = 0; i < 10; ++i) {
                const began = performance.now();
                showJobs(last);
                document.body.getBoundingClientRect();
                times.push(performance.now() - began);
            }
            return Math.min(...times);
        })()"""
        folded = self.value(url, script)
        first, unfolded, rows = self.chromium.ask(f"""(() => {{
            const began = performance.now();
            document.querySelector('.others button').click();
            document.body.getBoundingClientRect();
            const first = performance.now() - began;
            return [first, {script}, document.querySelectorAll('.nodes tbody tr').length];
        }})()""")
        shown = self.chromium.load(url, JOB)[1]
        print(f"1,000 nodes: shown after {shown:.2f} s; again in {folded:.1f} ms; all nodes unfolded in {first:.0f} ms, "
              f"again in {unfolded:.1f} ms")
        self.assertEqual(1000, rows)
        self.assertLess(folded, 50 * SLOW)
        self.assertLess(unfolded, 200 * SLOW)


if __name__ == "__main__":
    unittest.main(verbosity=2)
