"""A report in a browser: narrow and wide, light and dark, without errors, and nothing sticks out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.test_report import FACTS, FIGURES
from tests.report.test_timeline import LAST
from tweed.report.page import render

CHROMIUM = shutil.which("chromium")
# As root with apt-get, tools/system.sh has installed it.
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and (os.geteuid() != 0 or shutil.which("apt-get") is None),
    reason="chromium is not installed, and cannot be without asking: apt install chromium",
)
#: Tells at the end what the page is like, as a message on the console.
PROBE = """<script>addEventListener("load", () => console.log("probe " + JSON.stringify({
  room: innerWidth,
  width: document.documentElement.scrollWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  ink: getComputedStyle(document.body).color,
  heights: [...document.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height),
})))</script>"""


def console(page: Path, width: int, dark: bool) -> list[str]:
    """Opens a page in a frame of so many pixels, and gives what came on its console.

    A frame, since a window has 500 pixels at least; it is dark only where what is around it may be.
    """
    frame = f'<iframe src="{page.name}" width="{width}" height="1000" style="border: 0"></iframe>'
    around = page.with_name("around.html")
    around.write_text(f'<!DOCTYPE html><meta name="color-scheme" content="light dark">{frame}')
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    look = ["--window-size=1600,1200", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [str(CHROMIUM), *flags, *look, f"--user-data-dir={page.parent}/profile", around.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return re.findall(r':CONSOLE[:(]\d+\)?\] "(.*)", source:', done.stderr)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_report_fits_and_has_no_errors(width: int, dark: bool, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render("demo", FACTS, [*FIGURES, LAST]).replace("</body>", PROBE + "</body>"))
    (told,) = console(page, width, dark)  # the probe's, and no error's
    found = json.loads(told.removeprefix("probe "))
    assert found["room"] == width
    assert found["width"] <= width
    assert found["dark"] == dark
    assert (sum(map(int, re.findall(r"\d+", found["ink"]))) > 384) == dark, found
    assert min(found["heights"]) > 5  # pixels: it can be read


def test_an_error_of_a_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html><script>undefined.length</script>")
    (told,) = console(page, 400, dark=False)
    assert "TypeError" in told
