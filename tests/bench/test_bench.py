"""The harness of `make bench`: how calls become rows, rows become tables, and one live race."""

from __future__ import annotations

import pytest

from bench import collectives, machine, memory, run, schedules, simulator, table, training, units
from bench.race import Contender, Lap, Pace, race
from bench.run import Heat, Row

TINY = Pace(rounds=2, seconds=0.0, least=4, most=4)
MB = 1 << 20


def timed(part: str, ranks: int, size_bytes: int, side: str, seconds: float) -> Row:
    spans = dict.fromkeys(("median_s", "p99_s", "least_s", "mean_s", "in_a_row_s", "cpu_s_per_call"), seconds)
    return {"part": part, "ranks": ranks, "bytes": size_bytes, "side": side, "calls": 20, **spans}


def compared(part: str, ranks: int, size_bytes: int, *seconds: float) -> list[Row]:
    sides = ("gloo", "tweed", "tweed.empty")
    return [timed(part, ranks, size_bytes, *pair) for pair in zip(sides, seconds, strict=True)]


def lines(page: str, *words: str) -> list[str]:
    return [line for line in page.splitlines() if all(word in line for word in words)]


def test_a_block_keeps_to_time_and_bounds() -> None:
    pace = Pace(rounds=10, seconds=1.0, least=20, most=1000)
    assert [pace.block(call_s) for call_s in (10.0, 0.01, 1e-6, 0.0)] == [2, 10, 100, 100]


def test_a_call_lasts_as_long_as_on_its_slowest_rank() -> None:
    first = Heat("all_reduce", 8, {"tweed": [Lap([1.0, 5.0], 0.5), Lap([2.0, 2.0], 0.5)]})
    second = Heat("all_reduce", 8, {"tweed": [Lap([3.0, 1.0], 1.0), Lap([2.0, 4.0], 2.0)]})
    row = run._row([first, second], "tweed")
    assert (row["calls"], row["least_s"], row["median_s"], row["p99_s"]) == (4, 2.0, 3.5, 5.0)
    assert row["mean_s"] == 3.5
    assert row["in_a_row_s"] == 3.0  # both blocks last 6 seconds on their slowest rank, and have two calls
    assert row["cpu_s_per_call"] == 1.0
    assert row["block_medians_s"] == [4.0, 3.0]


def test_quantiles_of_few_and_many() -> None:
    assert run.quantile([1.0], 0.99) == 1.0
    assert run.quantile([float(i) for i in range(1, 201)], 0.99) == 198.0


def test_figures_have_three_digits_and_no_exponent() -> None:
    shown = [units.seconds(value) for value in (2.5, 0.01234, 123.4e-6, 4e-9)]
    assert shown == ["2.50 s", "12.3 ms", "123 µs", "0.00400 µs"]
    assert [units.size(value) for value in (100, 4096, 25 * MB)] == ["100 bytes", "4 KB", "25 MB"]


def test_a_loss_is_bold() -> None:
    assert units.times(1.0, 4.0) == "4.00x"
    assert units.times(4.0, 1.0) == "**0.250x**"


def test_goals_are_judged() -> None:
    page = table.page(compared("all_reduce", 2, 100 * MB, 0.08, 0.016, 0.01))
    assert lines(page, "100 MB", "ordinary", "4x", "5.00x", "yes")
    assert lines(page, "100 MB", "`tweed.empty`", "9x", "8.00x", "**no**")


def test_cases_keep_their_sides_together() -> None:
    rows = compared("broadcast", 4, MB, 0.002, 0.004, 0.001)
    page = table.page(rows)
    assert lines(page, "broadcast", "| 2.00 ms |", "**0.500x**", "2.00x", "20 / 20 / 20")
    assert "Goals" not in page


def test_the_distance_is_to_the_best_probe_of_the_same_ranks() -> None:
    probes = [timed("memory", 2, 100 * MB, side, 0.01) for side in memory.PASSES]
    rows = [*compared("all_reduce", 2, 100 * MB, 1.0, 0.032, 0.016), *probes]
    page = table.page([*rows, *compared("all_reduce", 4, 100 * MB, 1.0, 1.0, 1.0)])
    section = page.partition("## Distance")[2].partition("\n## ")[0]
    # the best: three passes in 10 ms; at least four passes in ordinary tensors, two in shared ones
    assert lines(section, "ordinary", "13.3 ms", "32.0 ms", "42%")
    assert lines(section, "`tweed.empty`", "6.67 ms", "16.0 ms", "42%")
    assert len(lines(section, "100 MB")) == 2


def test_tables_replace_what_is_between_the_markers() -> None:
    document = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.put(document, "new")
    assert once == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    assert table.put(once, "new") == once
    with pytest.raises(ValueError, match="lacks a marker"):
        table.put("no markers", "new")


def test_a_busy_machine_is_named() -> None:
    env = machine.environment()
    assert machine.warning({**env, "load": 0.4}) is None
    busy = {**env, "load": 5.2}
    assert "load average 5.2" in str(machine.warning(busy))
    assert "load average 5.2" in table.page([busy])
    assert machine.file_name({**env, "date": "2026-01-31", "cpu": "Some CPU @ 3", "cores": 2}) == (
        "2026-01-31-some-cpu-3-2-cores.jsonl"
    )


def test_the_kernels_example_is_read() -> None:
    output = (
        "limits, 100 MB\n  read (sum of u64)               16.5 GB/s      6.00 ms\n\n"
        "float32 SUM\n  2 sources, memory               20.1 GB/s      7.00 ms\n\n"
        "uint8 SUM\n  2 sources, memory               20.1 GB/s      7.00 ms\n"
    )
    rows = list(memory.read_example(output))
    assert [(row["of"], row["side"], row["gb_per_s"]) for row in rows] == [
        ("limits, 100 MB", "read (sum of u64)", 16.5),
        ("float32 SUM", "2 sources, memory", 20.1),
    ]


def test_schedules_and_simulator_have_their_tables() -> None:
    page = table.page([*schedules.built((4,)), *simulator.events((4,))])
    section = page.partition("## The simulator")[2]
    assert lines(page, "| ring | 4 | 24 |")
    assert lines(section, "ring", "| 4 |")


def all_kinds(rank: int, ranks: int) -> list[Heat]:
    reduced = collectives._all_reduce(rank, ranks, (4096, MB), TINY)
    others = collectives._others(rank, ranks, 4096, TINY)
    return [*reduced, *others, *training._steps(rank, ranks, TINY)]


def test_live_every_side_has_its_row() -> None:
    rows = list(run.timings(all_kinds, 2))
    assert {row["calls"] for row in rows} == {4}
    page = table.page(rows)
    for word in ("all_reduce", *collectives._OTHERS, "DDP on Gloo", "attach on tweed", "add in place"):
        assert word in page


def counting(rank: int, ranks: int) -> list[Heat]:
    order: list[str] = []
    sides = [Contender(side, lambda side=side: order.append(side)) for side in "ab"]
    laps = race(sides, TINY, lockstep=True)
    assert order[-8:] == list("aabbbbaa")
    return [Heat("order", 0, laps)]


def test_live_sides_take_turns() -> None:
    assert {row["side"] for row in run.timings(counting, 2)} == {"a", "b"}
