"""`tweed.simulate.objects`: the planner is tested in Rust; here, what Python hands over and gets back."""

from __future__ import annotations

import pytest

from tweed.collective import Topology
from tweed.errors import UsageError
from tweed.simulate.objects import Cut, Part, delete, get, put, reduce, run

SIZE = 1_000_000
LINKS = Topology.complete(9, bandwidth=125_000_000, latency_s=50e-6)
IDS = tuple(range(1, 9))
SOURCES = [put(0.0, i, object=i, numbytes=SIZE) for i in IDS]


def test_a_sum_names_its_ids_and_its_log_is_a_schedule() -> None:
    result = run(LINKS, [*SOURCES, reduce(0.0, 0, target=99, ids=IDS), get(0.0, 4, object=99)])
    assert result.included == {99: (Part(0, SIZE, IDS),)}
    assert result.got_s.keys() == {(0, 99), (4, 99)}
    assert result.seconds is not None and result.most_fed == 1
    proof = result.proofs[99]
    assert (proof.schedule.ranks, proof.edges) == (9, (0, SIZE))


def test_a_death_leaves_ranges_that_sum_different_ids() -> None:
    calls = [*SOURCES, reduce(0.0, 0, target=99, ids=IDS, mode="ranges")]
    first, second = run(LINKS, calls, deaths={4: 0.006}, message_s=5e-6).included[99]
    assert first.ids == IDS and second.ids == tuple(i for i in IDS if i != 4)
    assert (first.start, first.end, second.end) == (0, second.start, SIZE)


def test_calls_that_end_in_nothing_are_told_apart() -> None:
    calls = [get(0.0, 1, object=5), get(0.0, 2, object=6), delete(0.1, 3, object=6)]
    result = run(LINKS, calls)
    assert result.waiting == ((1, 5),) and result.seconds is None
    assert [(one.process, one.object) for one in result.failed] == [(2, 6)]
    assert "was deleted" in result.failed[0].why


def test_two_that_do_not_reach_each_other_go_on_afterwards() -> None:
    calls = [put(0.0, 0, object=1, numbytes=SIZE), get(0.0, 1, object=1), get(0.0, 2, object=1)]
    pairs = [(0, 1), (2, 1)]  # whoever feeds process 1
    usual, cut = (run(LINKS, calls, cuts=cuts) for cuts in ([], [Cut(pair, 0.004, 0.5) for pair in pairs]))
    assert usual.got_s[1, 1] < 0.02 and 0.504 < cut.got_s[1, 1] < 0.53
    assert cut.seconds is not None and cut.got_s[2, 1] < 0.53


@pytest.mark.parametrize("pair", [(0, 0), (0, 9)])
def test_a_cut_is_between_two_processes(pair: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="no cut parts"):
        run(LINKS, [get(0.0, 0, object=1)], cuts=[Cut(pair, 0.0, 1.0)])


@pytest.mark.parametrize(
    ("calls", "match"),
    [
        ([get(0.0, 9, object=1)], "process 9"),
        ([get(-1.0, 0, object=1)], "-1 s is not possible"),
        ([reduce(0.0, 0, target=9, ids=IDS, mode="some")], "mode 'some'|mode \"some\""),
        ([reduce(0.0, 0, target=9, ids=IDS, rule="best")], "measured"),
    ],
)
def test_what_cannot_be_is_refused(calls: list, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        run(LINKS, calls)
