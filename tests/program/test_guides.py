"""Tests the generated documentation site, llms.txt and the README's picture, built from the source folder alone."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def tool(name, *words):
    return subprocess.run(
        [sys.executable, str(SOURCE / "tools" / name), *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


class Guides(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-guides-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_site_links_exist_and_nothing_is_fetched(self):
        done = tool("guides.py", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = {page.name: page.read_text() for page in self.folder.glob("*.html")}
        self.assertIn("index.html", pages)
        self.assertEqual(len(pages), len(list((SOURCE / "docs").rglob("*.md"))) + 2)  # README and CONTRIBUTING
        for name, text in pages.items():
            self.assertEqual(text.count("<table>"), text.count("</table>"), name)
            for kind, target in re.findall(r'(href|src)="([^"]+)"', text):
                if re.match(r"https?:", target):
                    self.assertEqual(kind, "href", f"{name} loads {target}")
                    self.assertNotIn(f'<link rel="stylesheet" href="{target}"', text)
                    continue
                place, _, anchor = target.partition("#")
                if place.startswith(".."):  # a file of the repository, or the generated reference
                    continue
                self.assertTrue((self.folder / (place or name)).exists(), f"{name}: {target}")
                if anchor:
                    self.assertIn(f'id="{anchor}"', pages[place or name], f"{name}: {target}")

    def test_the_search_knows_the_sections(self):
        self.assertEqual(tool("guides.py", self.folder).returncode, 0)
        script = (self.folder / "search.js").read_text()
        sections, _ = json.JSONDecoder().raw_decode(script.removeprefix("const SECTIONS="))
        found = [section["at"] for section in sections if "podfailurepolicy" in (section["heading"] + section["text"]).lower()
                 or "/healthz" in section["text"]]
        self.assertIn("docs-cluster.html#kubernetes", found)

    def test_llms_txt_names_every_page(self):
        self.assertEqual(tool("guides.py", "--llms", self.folder / "llms.txt").returncode, 0)
        made = (self.folder / "llms.txt").read_text()
        self.assertRegex(made, r"\A# Lockstep\n\n> Lockstep trains ")
        listed = set(re.findall(r"\]\(([^)]+)\)", made))
        self.assertEqual(listed, {str(page.relative_to(SOURCE)) for folder in ("docs", "docs/guides", "docs/tutorials") for page in (SOURCE / folder).glob("*.md")}
                         | {"CONTRIBUTING.md", "docs/decisions/README.md"})
        kept = (SOURCE / "llms.txt").read_text()  # `make docs` rewrites it
        for path in re.findall(r"\]\(([^)]+)\)", kept):
            self.assertTrue((SOURCE / path).exists(), path)

    def test_the_picture_is_of_a_run(self):
        run = self.folder / "run"
        run.mkdir()
        lines = [{"step": step, "loss": 7 / step, "learning_rate": 1e-3, "tokens_per_s": 12345.6} for step in range(10, 60, 10)]
        (run / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in [*lines, {"step": 50, "eval_loss": 0.3}]))
        done = tool("draw_run.py", run, self.folder / "run.svg", "--title", "a < b & c")
        self.assertEqual(done.returncode, 0, done.stderr)
        picture = xml.parse(self.folder / "run.svg").getroot()
        self.assertEqual(picture.get("aria-label"), "a < b & c")
        points = next(picture.iter("{http://www.w3.org/2000/svg}polyline")).get("points").split()
        self.assertEqual(len(points), 5)
        heights = [float(point.split(",")[1]) for point in points]
        self.assertEqual(heights, sorted(heights))  # y grows downwards
        self.assertIn("step 50/50   loss 0.1400   lr 1.00e-03   12.3k tok/s", (self.folder / "run.svg").read_text())
        other = self.folder / "other"
        other.mkdir()
        (other / "metrics.jsonl").write_text("\n".join(json.dumps({**line, "loss": 1.5}) for line in lines))
        done = tool("draw_run.py", run, other, self.folder / "both.svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        curves = list(xml.parse(self.folder / "both.svg").getroot().iter("{http://www.w3.org/2000/svg}polyline"))
        self.assertEqual(len({curve.get("stroke") for curve in curves}), 2)
        self.assertIn("run: 0.140   other: 1.500", (self.folder / "both.svg").read_text())
        (run / "metrics.jsonl").write_text(json.dumps(lines[0]))
        done = tool("draw_run.py", run, self.folder / "run.svg")
        self.assertIn("log at least two", done.stderr)
        self.assertEqual(xml.parse(SOURCE / "docs" / "quick_start.svg").getroot().get("role"), "img")


if __name__ == "__main__":
    unittest.main(verbosity=2)
