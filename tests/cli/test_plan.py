"""`tweed plan` as it is typed: tables, a stored plan, a picture, and wrong input in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tweed.cli import app
from tweed.collective import Plan, topology
from tweed.collective.topology import Topology
from tweed.errors import UsageError


def plan(*words: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, words)], env={"COLUMNS": "160"})


@pytest.fixture
def network(tmp_path: Path) -> Path:
    topology.write(topology.mesh(2, 3), tmp_path / "network.json")
    return tmp_path / "network.json"


def test_picks_with_their_reasons_and_a_plan_to_run(network: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "plan.json", tmp_path / "plan.svg"
    told = plan(network, "--sizes", "1KiB,1MB", "--out", out, "--plot", plot, "--all")
    assert told.exit_code == 0, told.output
    for words in ("all_gather on mesh 2x3, 6 ranks", "The bound at 976.6 KiB", "steps and latency decide"):
        assert words in told.stdout
    assert f"TWEED_PLAN={out}" in told.stdout
    made = Plan.from_json(out.read_text())
    assert made.topology == topology.read(network) and made.rows()
    assert plot.read_text().startswith("<?xml")


def test_figures_as_json(network: Path) -> None:
    told = json.loads(plan(network, "--collective", "all_gather", "--sizes", "64", "--json").stdout)
    assert list(told) == ["all_gather"]
    one = told["all_gather"]
    times = [builder["times"]["64"]["seconds"] for builder in one["builders"]]
    assert one["sizes"][0]["seconds"] == min(times) and one["sizes"][0]["limit"]


NETWORK = "the file of a network"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "either a file that describes the network, or --measure"),
        ([NETWORK, "--measure"], "either a file that describes the network, or --measure"),
        ([NETWORK, "--ranks", 2], "belong to --measure"),
        (["--measure"], "runs under torchrun"),
        (["--measure", "--ranks", 1], "nothing can be measured between 1 ranks"),
        (["none.json"], "cannot be read: No such file"),
        ([NETWORK, "--sizes", "some"], "cannot read the size 'some': write it like 64KiB"),
        ([NETWORK, "--sizes", "1KiB,,2KiB"], "cannot read the size ''"),
        ([NETWORK, "--sizes", "-1"], "cannot read the size '-1'"),
        ([NETWORK, "--builder", "rnig"], "no such builder in ['rnig']"),
        ([NETWORK, "--collective", "all_sort"], "there is no collective 'all_sort'"),
        ([NETWORK, "--out", "nowhere/plan.json"], "there is no folder nowhere"),
        ([NETWORK, "--plot", "nowhere/plan.svg"], "there is no folder nowhere"),
        ([NETWORK, "--sizes", "64", "--plot", "plan.txt"], "ends in .svg or .png"),
    ],
)
def test_wrong_words(network: Path, monkeypatch: pytest.MonkeyPatch, words: list[object], says: str) -> None:
    monkeypatch.chdir(network.parent)
    error = plan(*(network if word is NETWORK else word for word in words)).exception
    assert isinstance(error, UsageError) and says in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[]", "an object belongs here"),
        ('{"format": "tweed topology", "version": 1, "ranks": 1, "links": []}', "ranks is 1"),
        ('{"format": 2, "ranks": 2, "picks": [], "topology": null}', "is a plan, not a network"),
        (json.dumps(topology.plain(Topology(2, [(0, 1, 9, 0.0)]))), "1"),
        (json.dumps(topology.plain(Topology(3, [(0, 1, 9, 0.0), (1, 0, 9, 0.0)]))), "rank 2"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "network.json"
    path.write_text(text)
    error = plan(path).exception
    assert isinstance(error, UsageError) and says in str(error) and str(path) in str(error)


def test_what_a_doctor_has_measured(tmp_path: Path) -> None:
    pairs = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    links = [{"src": a, "dst": b, "via": "tcp", "bandwidth": 1e8, "latency_s": 1e-4} for a, b in pairs]
    matrix = {"members": [{}, {}, {}], "links": links}
    path = tmp_path / "doctor.json"
    path.write_text(json.dumps({"findings": [], "matrix": matrix}))
    told = json.loads(plan(path, "--sizes", "1MiB", "--collective", "all_reduce", "--json").stdout)
    assert told["all_reduce"]["network"] == "3 ranks, measured"
    assert told["all_reduce"]["host"]["header"] == 0  # what was counted is payload
    shared = {**matrix, "links": [{**link, "via": "shm"} for link in links]}
    for odd, says in (
        (None, "found on one host"),
        ({}, "is not what `tweed doctor` measures"),
        (shared, "all ranks share one host's memory"),
    ):
        path.write_text(json.dumps({"findings": [], "matrix": odd}))
        error = plan(path).exception
        assert isinstance(error, UsageError) and says in str(error)
