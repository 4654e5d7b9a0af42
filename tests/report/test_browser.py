"""A report in a browser: narrow and wide, light and dark, without errors, and nothing sticks out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.report.test_report import FACTS, FIGURES
from tests.report.test_timeline import LAST, STEPS
from tweed.report import compared, timeline
from tweed.report.page import render
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.report.study import page as study_page

CHROMIUM = shutil.which("chromium")
# As root with apt-get, tools/system.sh has installed it.
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and (os.geteuid() != 0 or shutil.which("apt-get") is None),
    reason="chromium is not installed, and cannot be without asking: apt install chromium",
)
#: Tells at the end what the page is like, as a message on the console.
PROBE = """<script>addEventListener("load", () => console.log("probe " + JSON.stringify({
  page: location.pathname,
  room: innerWidth,
  width: document.documentElement.scrollWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  ink: getComputedStyle(document.body).color,
  heights: [...document.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height),
})))</script>"""
WIDTHS = (400, 1400)


def written(folder: Path) -> list[Path]:
    """A page of each kind, with all that it can have, and the probe."""
    figures = [*FIGURES, LAST]
    plot = Plot("wide", "A wide plot", svg(timeline.draw(STEPS)))
    table = Table("A table", ["", *map(str, range(30))], [["row", *["1,234.5 ms"] * 30]])
    section = Section("A section", ["Words."], [plot], [table])
    pages = {
        "report": render("demo", FACTS, figures),
        "compared": compared.render({"a": FACTS, "b": FACTS}, {"a": figures, "b": FIGURES}),
        "study": study_page(Study("A study", "What it is.", [section]), FACTS),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text.replace("</body>", f"{PROBE}</body>"))
    return [folder / f"{name}.html" for name in pages]


def console(pages: Sequence[Path], dark: bool) -> list[str]:
    """Opens pages in frames, narrow and wide, and gives what came on their consoles.

    Frames, since a window has 500 pixels at least; they are dark only where what is around them may be.
    """
    frames = [f'<iframe src="{page.name}" width="{width}" height="900"></iframe>'
              for page in pages for width in WIDTHS]  # fmt: skip
    around = pages[0].with_name("around.html")
    around.write_text(f'<!DOCTYPE html><meta name="color-scheme" content="light dark">{"".join(frames)}')
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    look = ["--window-size=1600,1200", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [str(CHROMIUM), *flags, *look, f"--user-data-dir={around.parent}/profile", around.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return re.findall(r':CONSOLE[:(]\d+\)?\] "(.*)", source:', done.stderr)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_and_have_no_errors(dark: bool, tmp_path: Path) -> None:
    pages = written(tmp_path)
    told = console(pages, dark)
    assert [line for line in told if not line.startswith("probe ")] == []
    found = [json.loads(line.removeprefix("probe ")) for line in told]
    assert len(found) == len(pages) * len(WIDTHS)
    for one in found:
        assert one["room"] in WIDTHS and one["width"] <= one["room"], one["page"]
        assert one["dark"] == dark
        assert (sum(map(int, re.findall(r"\d+", one["ink"]))) > 384) == dark, one["ink"]
        assert min(one["heights"]) > 5, one["page"]  # pixels: it can be read


def test_an_error_of_a_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html><script>undefined.length</script>")
    told = console([page], dark=False)
    assert told and all("TypeError" in line for line in told)
