"""The report: from a folder to one page that stands alone."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tweed.errors import UsageError
from tweed.report.page import notes, render, result, write
from tweed.report.plots import ACCURACY, BYTES, LOSS, TIME, draw, points, svg
from tweed.testbed import Counters
from tweed.train.folder import FORMAT

FACTS: dict[str, Any] = {
    "format": FORMAT,
    "settings": {"task": "digits", "workers": 4, "strategy": "every_step", "lr": 0.05}
    | {"against": "ddp-gloo", "network": None},
    "sides": {"tweed": "tweed every_step", "ddp-gloo": "PyTorch DDP on Gloo"},
    "command": "tweed train --name '<b>'",
    "one_host": True,
    "unshaped": None,
    "test_samples": 359,
    "versions": {"tweed": "0.1.0", "torch": "2.15.0"},
    "machine": {"processor": "a processor", "cores": 2, "memory_bytes": 2**34, "kernel": "6.1"},
    "started": "2026-11-20 17:00 UTC",
}


def told(side: str, step: int, accuracy: float | None) -> dict[str, Any]:
    done = {"side": side, "step": step, "samples": step * 64, "seconds": step * 0.1, "samples_per_s": 640.0}
    sent = {
        "bytes_per_worker": step * 1_000_000,
        "link_bytes_per_worker": step * 1_100_000,
        "delivered": None,
    }
    learned = {"loss": 2.0 / step, "test_loss": None if accuracy is None else 0.25, "accuracy": accuracy}
    waited = {"waiting_s": 0.5 if side == "tweed" else None, "aside_bytes_per_worker": 0}
    return done | sent | learned | waited


def without_links(told: dict[str, Any]) -> dict[str, Any]:
    return told | {"link_bytes_per_worker": None}


MEASURED = [
    told(side, step, 0.9 if step % 2 == 0 else None) for side in FACTS["sides"] for step in (1, 2, 3, 4)
]
FIGURES = [without_links(line) for line in MEASURED]
SHAPED = FACTS | {"settings": FACTS["settings"] | {"network": "rate=100mbit,loss=0.1%,congestion=cubic"}}
UNSHAPED = FACTS | {"unshaped": "nft is missing: apt install nftables"}
LINK = asdict(Counters(sent_bytes=9_000_000, sent_packets=6000, lost_packets=7, overflowed_packets=2))
LINKS = [{"side": side, "counted": [LINK, LINK], "findings": []} for side in FACTS["sides"]]


class Links(HTMLParser):
    """Collects what a page would load from elsewhere, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture(scope="module")
def page() -> Links:
    links = Links()
    links.feed(render("demo", FACTS, FIGURES))
    return links


def test_page_loads_nothing_from_elsewhere(page: Links) -> None:
    assert [link for link in page.loads if not link.startswith("#")] == []


def test_page_has_its_plots_with_both_sides(page: Links) -> None:
    for quantity, against in product(("Loss", "Accuracy"), ("time", "bytes")):
        assert f"{quantity} against {against}" in page.text
    assert "Time to this accuracy" in page.text and "Bytes to this accuracy" in page.text
    assert page.text.count("PyTorch DDP on Gloo") == 2 + 6
    assert page.text.count("sent per worker (MB, computed)") == 3


def test_page_tells_settings_versions_machine_and_command(page: Links) -> None:
    words = ("digits", "every_step", "2.15.0", "a processor", "16.0 GiB", "6.1", "tweed train --name '<b>'")
    assert [word for word in words if word not in page.text] == []


def test_the_same_figures_give_the_same_page() -> None:
    assert render("demo", FACTS, FIGURES) == render("demo", FACTS, FIGURES)


def test_result_is_a_sides_last_line() -> None:
    ours = [line for line in FIGURES if line["side"] == "tweed"]
    assert result("tweed", ours) == {
        "side": "tweed",
        "steps": "4",
        "accuracy": "90.00%",
        "test loss": "0.2500",
        "training time": "0.4 s",
        "samples/s": "640",
        "sent per worker": "4.0 MB",
        "waited on the network": "0.5 s",
        "delivered": "all",
    }


def test_what_is_not_known_is_said() -> None:
    row = result("DDP", [without_links(told("ddp-gloo", 1, None))])
    assert row["accuracy"] == "–"
    assert row["waited on the network"] == "not known"


def test_notes_are_honest_about_host_and_network() -> None:
    words = " ".join(notes(FACTS, 2))
    assert "one host with 2 cores and so took turns" in words
    assert "not shaped by tweed" in words
    assert "computed" in words
    assert "first broadcast of the model, the steps, and the exchange that ends them" in words
    assert "one after the other" in words
    alone = notes(FACTS | {"one_host": False}, 1)
    assert "torchrun" in alone[0]
    assert "one after the other" not in " ".join(alone)


def test_points_need_both_quantities() -> None:
    assert points(FIGURES[:4], TIME, ACCURACY) == ([0.2, 0.4], [90.0, 90.0])
    assert points(FIGURES[:2], BYTES, LOSS) == ([1.0, 2.0], [2.0, 1.0])


def test_plot_keeps_text_as_text() -> None:
    text = svg(draw({"ours": FIGURES[:4]}, TIME, LOSS, "a network"))
    assert text.startswith("<svg")
    assert re.search(r"<text[^>]*>training loss</text>", text)
    assert re.search(r"<text[^>]*>a network</text>", text)


def read(facts: dict[str, Any], figures: list[dict[str, Any]], links: list[dict[str, Any]]) -> str:
    page = Links()
    page.feed(render("demo", facts, figures, links))
    return page.text


def test_a_shaped_network_is_in_the_head_and_on_every_plot() -> None:
    text = read(SHAPED, MEASURED, LINKS)
    assert text.count("Network: 100 Mbit/s per worker, 0.1 % of packets lost, cubic") == 1 + 6


def test_bytes_of_a_shaped_network_are_measured() -> None:
    text = read(SHAPED, MEASURED, LINKS)
    assert text.count("sent per worker (MB, measured at its link)") == 3
    assert text.count("4.4 MB") == 2
    assert "computed" not in text


def test_what_the_links_dropped_is_told_by_side() -> None:
    said = notes(SHAPED, 2, LINKS)
    dropped = "PyTorch DDP on Gloo: of 12,000 packets, 14 were lost by chance and 4 to full"
    assert any(note.startswith(dropped) for note in said)
    assert "nothing went round the links" in " ".join(said)


def test_bytes_that_went_round_are_told() -> None:
    wrong = [LINKS[0] | {"findings": ["all workers: the rest went round them"]}, LINKS[1]]
    assert "NOT as it should be: all workers: the rest went round them" in " ".join(notes(SHAPED, 2, wrong))


def test_a_run_that_went_on_unshaped_is_marked_everywhere() -> None:
    text = read(UNSHAPED, FIGURES, [])
    assert text.count("Network NOT shaped: none could be built here") == 1 + 6
    assert "apt install nftables" in text


def test_a_run_that_asked_for_no_network_says_so_on_every_plot() -> None:
    assert read(FACTS, FIGURES, []).count("Network not shaped") == 1 + 6
    assert read(FACTS | {"one_host": False}, FIGURES, []).count("Network not known") == 1 + 6


def test_a_run_without_figures_says_so() -> None:
    assert "told no figures yet" in render("demo", FACTS, [])


def test_write_makes_one_file(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(FACTS))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in FIGURES))
    path = write(tmp_path)
    assert path == tmp_path / "report.html"
    assert "<svg" in path.read_text()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run in"):
        write(tmp_path)


def test_a_run_that_counted_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({key: FACTS[key] for key in FACTS if key != "format"}))
    with pytest.raises(UsageError, match=f"has format 1, this tweed reads {FORMAT}"):
        write(tmp_path)
