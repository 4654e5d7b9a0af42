"""What builders for networks take: one point, a table, a picture."""

from __future__ import annotations

from pathlib import Path

from bench import builders, pictures
from bench.builders import Sweep


def test_a_point_is_measured() -> None:
    row = builders.point(Sweep("multitree", "fat-tree", (16,)), 16)
    assert (row["side"], row["network"], row["ranks"]) == ("multitree", "fat-tree", 16)
    assert row["sends"] == 2 * 16 * 15
    assert row["cpu_s"] > 0
    assert row["bytes"] >= 40 * row["sends"]


def test_points_come_into_a_table_and_a_picture(tmp_path: Path) -> None:
    row = {"part": builders.PART, "side": "forest", "network": "torus", "pieces": 1}
    quick = row | {"ranks": 16, "sends": 480, "cpu_s": 0.25, "peak_bytes": 3 << 20, "bytes": 1 << 20}
    endless = row | dict.fromkeys(("sends", "cpu_s", "peak_bytes", "bytes")) | {"ranks": 64}
    table = pictures.builders([quick, endless])
    assert "| forest | 1 | torus | 16 | 480 | 250 ms | 3 MB | 1 MB |" in table
    assert "**more than 600 s**" in table
    pictures.draw_builders([quick, endless], tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()


def test_without_points_there_is_neither(tmp_path: Path) -> None:
    assert pictures.builders([]) == ""
    pictures.draw_builders([], tmp_path / "picture.svg")
    assert not list(tmp_path.iterdir())
