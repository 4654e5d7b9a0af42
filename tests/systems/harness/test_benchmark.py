"""The harness: how many calls, whose turn, and what becomes of a contender that fails."""

from __future__ import annotations

import time

from tweed.errors import TweedError
from tweed.systems.harness.benchmark import Config, Contender, Measured, benchmark
from tweed.testbed import preload, run_ranks

preload("tweed.systems.harness.benchmark")


def test_a_block_keeps_to_time_and_bounds() -> None:
    config = Config(rounds=10, seconds=1.0, least=20, most=1000)
    assert [config.block(call_s) for call_s in (10.0, 0.01, 1e-6, 0.0)] == [2, 10, 100, 100]


def test_after_a_settling_call_come_as_many_as_fit() -> None:
    config = Config(rounds=3, seconds=2.0, least=0, most=60, settle=True)
    assert [config.after(first_s) for first_s in (10.0, 0.5, 0.01, 0.0)] == [0, 1, 20, 20]


def test_blocks_have_whole_periods() -> None:
    contender = Contender("a", time.monotonic, period=8)
    assert [contender.whole(calls) for calls in (0, 7, 8, 20.5)] == [8, 8, 8, 16]


def in_turns(rank: int, ranks: int) -> tuple[list[str], dict[str, Measured]]:
    order: list[str] = []
    contenders = [
        Contender("a", lambda: order.append("a"), 2),
        Contender("b", lambda: order.append("b"), warm=7),
    ]
    measured = benchmark(contenders, Config(2, 0.0, least=2, most=2, warm=1))
    return order, measured


def test_contenders_take_turns_after_their_warm_calls() -> None:
    for order, measured in run_ranks(in_turns, 2, backend="gloo"):
        assert "".join(order) == "aaaa" + "b" * 7 + "b" + "aab" + "baa"
        assert [len(one.calls_s) for one in measured["a"].rounds] == [2, 2]
        assert [len(one.calls_s) for one in measured["b"].rounds] == [1, 1]


def failing(rank: int, ranks: int, settle: bool) -> dict[str, Measured]:
    calls = 0

    def broken() -> float:
        nonlocal calls
        calls += 1
        if rank == 1 and calls > 2:
            raise TweedError("a peer was lost")
        return 0.5

    contenders = [Contender("broken", broken), Contender("whole", lambda: 1.5)]
    return benchmark(contenders, Config(3, 1e9, least=0, most=6, warm=1, settle=settle))


def test_a_contender_that_fails_on_one_rank_is_left_out_and_the_others_go_on() -> None:
    for settle in (False, True):
        first, second = run_ranks(failing, 2, settle, backend="gloo")
        assert (first["broken"].failed, second["broken"].failed) == (None, "a peer was lost")
        for measured in (first, second):
            assert [one.returned for one in measured["whole"].rounds] == [[1.5, 1.5]] * 3
            assert len(measured["broken"].rounds) == 1
