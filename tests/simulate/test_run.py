"""Runs on a virtual network, against formulas and against themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import COLLECTIVES, Pattern, Schedule, Send, Topology, build, builders, schedule
from tweed.errors import ScheduleError, UsageError
from tweed.simulate import Lost, Result, run, stragglers

MB = 1_000_000
BANDWIDTH = 1000 * MB
LATENCY_S = 20e-6
ROWS = [row.patterns[name] for name in COLLECTIVES for row in builders(name) if name in row.patterns]
IDS = [f"{row.collective}-{row.name}" for row in ROWS]


def flat(ranks: int) -> Topology:
    return Topology.complete(ranks, BANDWIDTH, LATENCY_S)


def ring(ranks: int) -> Schedule:
    return build("all_reduce", "ring", ranks)


@pytest.mark.parametrize("ranks", [2, 3, 8, 16])
def test_a_ring_costs_what_the_alpha_beta_model_says(ranks: int) -> None:
    result = run(ring(ranks), ranks * MB, flat(ranks))
    expected = 2 * (ranks - 1) * (LATENCY_S + MB / BANDWIDTH)
    assert result.seconds == pytest.approx(expected, abs=1e-9 * ranks)


@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_builder_ends_right_and_moves_the_bytes_it_declares(row: Pattern, ranks: int) -> None:
    made = row.schedule(ranks)
    numbytes = 100 * ranks * ranks + 7
    result = run(made, numbytes, flat(ranks), piece=64, window=2)
    assert result.seconds is not None
    assert result.link_bytes == made.cost(numbytes).links


def test_slices_hide_latency() -> None:
    slow_start = Topology.complete(8, BANDWIDTH, 1e-3)
    whole = run(ring(8), 8 * MB, slow_start)
    cut = run(ring(8), 8 * MB, slow_start, piece=MB // 8, window=8)
    assert whole.seconds is not None
    assert cut.seconds is not None
    assert cut.seconds < whole.seconds


def test_survivors_name_the_dead() -> None:
    result = run(ring(4), 4 * MB, flat(4), deaths={2: 0.0015}, detection_s=0.5)
    assert result.seconds is None
    assert result.died_s == {2: 0.0015}
    assert [lost[:2] for lost in result.lost] == [(0, 2), (1, 2), (3, 2)]
    assert all(lost.at_s == pytest.approx(0.5015) for lost in result.lost)
    assert result.finished_s == (None,) * 4
    assert isinstance(result.lost[0], Lost)


def test_a_late_rank_delays_everybody() -> None:
    on_time, late = (run(ring(4), 4 * MB, flat(4), delays=delays) for delays in ({}, {1: 0.25}))
    assert on_time.seconds is not None
    assert late.seconds == pytest.approx(on_time.seconds + 0.25)


def test_stragglers_are_drawn_by_their_seed() -> None:
    slow = stragglers(1000, share=0.2, factor=3.0, seed=5)
    assert (
        slow
        == stragglers(1000, share=0.2, factor=3.0, seed=5)
        != stragglers(1000, share=0.2, factor=3.0, seed=6)
    )
    assert 150 < len(slow) < 250
    assert all(1 <= factor < 3 for factor in slow.values())
    steady, uneven = (
        run(ring(16), MB, flat(16), slow=each).seconds
        for each in ({}, stragglers(16, share=1, factor=3, seed=1))
    )
    assert steady is not None
    assert uneven is not None
    assert uneven > 1.1 * steady
    with pytest.raises(UsageError, match="must be from 0 to 1"):
        stragglers(4, share=2, factor=3, seed=0)


def test_the_log_has_every_message() -> None:
    result = run(ring(3), 3000, flat(3), log=True)
    assert len(result.log) == len(ring(3))
    first = result.log[0]
    assert (first.slice, first.bytes, first.left_s) == (0, 1000, 0.0)
    assert first.arrived_s == pytest.approx(LATENCY_S + 1000 / BANDWIDTH)


def test_ranks_of_one_host_share_memory() -> None:
    result = run(ring(4), 4 * MB, flat(4), hosts=[0, 0, 1, 1])
    assert set(result.link_bytes) == {(1, 2), (3, 0)}


def test_a_schedule_of_ones_own_runs_over_a_switch() -> None:
    switch = Topology(2, [(0, 2, BANDWIDTH, LATENCY_S), (2, 1, BANDWIDTH // 4, LATENCY_S)])
    sends = [Send(0, 0, 1, 0, reduce=False, route=[2])]
    made = schedule("own", "broadcast", ranks=2, chunks=1, sends=sends, topology=switch)
    assert run(made, MB, switch).seconds == pytest.approx(2 * LATENCY_S + 4e-3)


def test_links_side_by_side_switches_headers_and_messages_cost_what_they_should() -> None:
    ways = [Send(0, src, 0, src, reduce=False, route=[3]) for src in (1, 2)]
    ends = [(src, 3, BANDWIDTH, LATENCY_S) for src in (1, 2)]

    def seconds(count: int, capacities: dict[int, int], **conditions: Any) -> float | None:
        links = [*ends, (3, 0, BANDWIDTH, LATENCY_S, count)]
        network = Topology(3, links, capacities=capacities)
        gather = schedule("own", "gather", ranks=3, chunks=3, sends=ways, topology=network)
        return run(gather, 3 * MB, network, **conditions).seconds

    latency_s = 2 * LATENCY_S
    assert seconds(1, {}) == pytest.approx(latency_s + 2e-3)
    assert seconds(2, {}) == pytest.approx(latency_s + 1e-3)
    assert seconds(2, {3: BANDWIDTH // 2}) == pytest.approx(latency_s + 4e-3)
    assert seconds(1, {}, header=16, packet=250) == pytest.approx(latency_s + 2.128e-3)
    assert seconds(2, {}, message_s=1e-3) == pytest.approx(latency_s + 4e-3)


def test_what_cannot_be_run_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="names rank 7, but there are only 4 ranks"):
        run(ring(4), MB, flat(4), deaths={7: 1.0})
    with pytest.raises(UsageError, match=r"a time of -1 s is not possible"):
        run(ring(4), MB, flat(4), delays={0: -1.0})
    with pytest.raises(UsageError, match="waits for ever for ranks"):
        run(ring(2), MB, Topology(2, [(0, 1, 0, 0.0), (1, 0, MB, 0.0)]))
    with pytest.raises(ScheduleError, match="link 2 -> 0, which the topology lacks"):
        run(ring(3), MB, Topology(3, [(0, 1, MB, 0.0), (1, 2, MB, 0.0)]))
    with pytest.raises(UsageError, match="there is no condition 'windows'"):
        run(ring(3), MB, flat(3), windows=3)  # type: ignore[call-arg]


rough = st.fixed_dictionaries(
    {
        "piece": st.one_of(st.none(), st.integers(1, 5000)),
        "window": st.integers(1, 4),
        "jitter_s": st.floats(0, 1e-3),
        "late_s": st.floats(0, 1e-2),
        "compute": st.one_of(st.none(), st.just(100 * MB)),
        "message_s": st.floats(0, 1e-4),
        "header": st.integers(0, 80),
        "packet": st.one_of(st.none(), st.integers(1, 1500)),
        "slow": st.dictionaries(st.integers(0, 3), st.floats(1, 9)),
    }
)


def rerun(row: Pattern, seed: int, conditions: dict[str, Any]) -> Result:
    return run(row.schedule(4), 20_000, flat(4), seed=seed, log=True, **conditions)


@given(st.sampled_from(ROWS), st.integers(0, 2**64 - 1), rough)
def test_the_same_seed_gives_the_same_run(row: Pattern, seed: int, conditions: dict[str, Any]) -> None:
    first = rerun(row, seed, conditions)
    assert first == rerun(row, seed, conditions)
    assert first.seconds is not None


@given(st.sampled_from(ROWS), st.floats(0, 0.05), st.integers(0, 3), rough)
def test_every_rank_ends_whoever_dies(
    row: Pattern, at_s: float, rank: int, conditions: dict[str, Any]
) -> None:
    result = run(row.schedule(4), 20_000, flat(4), deaths={rank: at_s}, **conditions)
    assert {lost.peer for lost in result.lost} <= {rank}
    ended = {rank for rank, at in enumerate(result.finished_s) if at is not None}
    assert ended | set(result.died_s) | {lost.rank for lost in result.lost} == set(range(4))
