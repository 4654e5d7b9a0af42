"""The harness of `make bench`: how calls become rows, rows become tables, and one live race."""

from __future__ import annotations

import mmap

import pytest

from bench import (
    admission,
    collectives,
    emulated,
    emulator,
    example,
    factors,
    footprint,
    iperf,
    linked,
    ltp,
    machine,
    memory,
    mpi,
    networks,
    run,
    schedules,
    shared,
    sparse,
    stranger,
    table,
    tabled,
    training,
    units,
)
from bench.cases import cases
from bench.run import Measurement, Row
from tweed.errors import NoTestbed
from tweed.systems.harness.benchmark import Config, Contender, Measured, Round, benchmark
from tweed.testbed import LiveNetwork, Network

TINY = Config(rounds=2, seconds=0.0, least=4, most=4)
MB = 1 << 20


def timed(part: str, ranks: int, size_bytes: int, side: str, seconds: float) -> Row:
    spans = dict.fromkeys(("median_s", "p99_s", "least_s", "mean_s", "in_a_row_s", "cpu_s_per_call"), seconds)
    return {"part": part, "ranks": ranks, "bytes": size_bytes, "side": side, "calls": 20, **spans}


def compared(part: str, ranks: int, size_bytes: int, *seconds: float) -> list[Row]:
    sides = ("gloo", "tweed", "tweed.empty")
    return [timed(part, ranks, size_bytes, *pair) for pair in zip(sides, seconds, strict=True)]


def one_host(ranks: int, size_bytes: int, *seconds: float) -> list[Row]:
    sides = ("gloo", "openmpi", "tweed", "tweed.empty")
    return [timed("all_reduce", ranks, size_bytes, *pair) for pair in zip(sides, seconds, strict=True)]


def between(network: str, gloo_s: float, tweed_s: float, sent_bytes: int = 40 * MB) -> list[Row]:
    marks = {"network": network, "sent_bytes_per_call": sent_bytes}
    pairs = (("gloo", gloo_s), ("tweed", tweed_s))
    return [timed(networks.PART, 4, 25 * MB, *pair) | marks for pair in pairs]


def flows(network: str, when: str, way: str, *rates: float) -> Row:
    return {"part": "iperf3", "network": network, "when": when, "way": way, "bits_per_s": list(rates)}


def lines(page: str, *words: str) -> list[str]:
    return [line for line in page.splitlines() if all(word in line for word in words)]


def test_a_call_lasts_as_long_as_on_its_slowest_rank() -> None:
    first = Measurement(
        "all_reduce", 8, {"tweed": Measured([Round([1.0, 5.0], 0.5), Round([2.0, 2.0], 0.5)])}
    )
    second = Measurement(
        "all_reduce", 8, {"tweed": Measured([Round([3.0, 1.0], 1.0), Round([2.0, 4.0], 2.0)])}
    )
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
    assert lines(page, "100 MB", "ordinary", "4x Gloo", "5.00x Gloo", "yes")
    assert lines(page, "100 MB", "`tweed.empty`", "9x Gloo", "8.00x Gloo", "**no**")
    assert "OpenMPI" not in page


def test_goals_beside_openmpi_are_judged_or_only_stated() -> None:
    page = table.page([*one_host(4, 100 * MB, 0.4, 0.2, 0.08, 0.05), *one_host(4, 4096, 1.0, 0.01, 0.1, 0.1)])
    goals = page.partition("## Goals")[2].partition("\n## ")[0]
    assert lines(goals, "100 MB", "ordinary", "2x OpenMPI", "2.50x OpenMPI", "yes")
    assert lines(goals, "100 MB", "`tweed.empty`", "5x OpenMPI", "4.00x OpenMPI", "**no**")
    assert lines(goals, "4 KB", "0.100x OpenMPI", "only to be stated")


def test_a_table_has_the_sides_that_were_measured() -> None:
    page = table.page(one_host(2, MB, 0.004, 0.001, 0.002, 0.001))
    assert lines(page, "Gloo", "OpenMPI", "tweed.empty, times OpenMPI")
    assert lines(
        page, "| 2 | 1 MB | 4.00 ms / 4.00 ms | 1.00 ms / 1.00 ms |", "2.00x | **0.500x** | 4.00x | 1.00x"
    )


def test_how_openmpi_ran_is_said() -> None:
    about = {"part": "openmpi", "version": "5.0"}
    page = table.page([about | {"ranks": ranks} | mpi.settings(ranks) for ranks in (1, 10_000)])
    assert lines(page, "| 5.0 | 1 | ob1 | self,sm | cma | spin |")
    assert lines(page, "| 5.0 | 10000 |", "give way")


def test_networks_are_told_apart_and_judged_by_their_bound_and_by_iperf3() -> None:
    slow, fast = "rate=1gbit,congestion=cubic", "congestion=cubic"
    rows = [*between(slow, 0.35, 0.33), *between(fast, 0.09, 0.06)]
    rows += [flows(slow, when, "one", rate) for when, rate in (("before", 9.7e8), ("after", 9.3e8))]
    rows += [flows(slow, when, "both", 9.5e8, 9.3e8) for when in ("before", "after")]
    found = cases(rows, networks.PART)
    assert [case.network for case in found] == [slow, fast]
    least = 1.5 * 25 * MB
    assert linked.least_bytes(found[0]) == least
    assert linked.against_iperf3(found[0], rows) == pytest.approx(least * 8 / 0.33 / 9.5e8)
    assert linked.against_iperf3(found[1], rows) is None
    page = table.page(rows)
    assert lines(page, f"`{slow}`", "0.98 of iperf3", "1.003", "yes")
    assert lines(page, f"`{fast}`", "2x Gloo", "1.50x Gloo", "**no**")
    assert lines(page, slow, "315 ms", "41.9 MB, 1.067x", "20 / 20")
    assert lines(page, slow, "each way at once", "950 Mbit/s, 930 Mbit/s")


def test_the_emulator_is_judged_by_what_was_asked_for() -> None:
    ping = {"part": emulator.PING, "network": "rtt=40ms", "asked_ms": 40.0, "median_ms": 41.5, "p99_ms": 50.0}
    rate = {"part": emulator.RATE, "network": "rate=1mbit", "asked_bits_per_s": 1e6, "bits_per_s": 0.98e6}
    loss = {"part": emulator.LOSS, "network": "loss=1%", "asked": 0.01, "off": 3.2}
    page = table.page([ping, rate, loss | {"sent_packets": 10_000, "lost_packets": 132}])
    assert lines(page, "median round trip", "within 1 ms", "+1.50 ms", "**no**")
    assert lines(page, "rate, `rate=1mbit`", "within 5%", "-2.0%", "yes")
    assert lines(page, "within 3 standard deviations", "+3.2", "**no**")
    assert lines(page, "1.320% of 10,000 packets")


def test_an_emulator_that_was_late_or_missed_something_was_not_honest() -> None:
    fine = {"part": emulator.LOAD, "network": "rtt=1ms", "hosts": 8, "rate_bits": 1e8, "arrived": 0.995}
    fine |= {
        "asked_ms": 1.0,
        "median_ms": 1.3,
        "p99_ms": 2.0,
        "missed_packets": 0,
        "offered": 0.98,
        "late": 0.001,
    }
    assert emulated.honest(fine)
    assert not emulated.honest(fine | {"median_ms": 2.1})
    assert not emulated.honest(fine | {"missed_packets": 1})
    assert not emulated.honest(fine | {"arrived": 0.97})
    assert not emulated.honest(fine | {"late": 0.02})
    cores = {"emulator_cores": 0.6, "machine_cores": 1.5}
    assert lines(table.page([fine | cores]), "| 8 | 100 Mbit/s | no | 1 ms | 98.0% | 99.5% |", "yes")
    assert lines(table.page([fine | cores | {"offered": 0.5}]), "yes, but the senders did not get there")


def test_where_no_testbed_can_be_had_the_page_says_why() -> None:
    why = {"part": "no testbed", "why": "a network of namespaces needs nft: apt install nftables"}
    page = table.page([why | {"network": "rate=1gbit"}, why | {"network": "rate=100mbit"}])
    assert page.count("apt install nftables") == 1
    assert "Goals" not in page


def test_no_testbed_is_a_row_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(network: Network, size: int) -> LiveNetwork:
        raise NoTestbed("not here")

    monkeypatch.setattr(networks, "opened", closed)
    rows = list(networks.all_reduces(networks.QUICK))
    assert {row["why"] for row in rows} == {"not here"}
    assert len(rows) == len(networks.QUICK)


def test_the_rates_of_iperf3_are_of_what_arrived() -> None:
    one = {"end": {"sum_sent": {"bits_per_second": 9.0}, "sum_received": {"bits_per_second": 8.0}}}
    assert iperf.rates(one) == [8]
    one["end"]["sum_received_bidir_reverse"] = {"bits_per_second": 7.0}
    assert iperf.rates(one) == [8, 7]


def test_bytes_on_the_wire_are_per_rank_and_call() -> None:
    measurements = [
        Measurement("x", 8, {"tweed": Measured([Round([1.0, 1.0], 0.1, sent)])}) for sent in (100, 300)
    ]
    assert run._row(measurements, "tweed")["sent_bytes_per_call"] == 100
    measurements = [Measurement("x", 8, {"tweed": Measured([Round([1.0], 0.1)])})]
    assert "sent_bytes_per_call" not in run._row(measurements, "tweed")


def test_extra_memory_is_that_of_the_rank_that_takes_most() -> None:
    row = {"part": "extra memory", "side": "tweed, TCP", "ranks": 2, "bytes": 100 * MB}
    row |= {"proportional_bytes": [MB, 50 * MB], "resident_bytes": [120 * MB, MB]}
    assert (tabled.copies(row, "proportional_bytes"), tabled.copies(row, "resident_bytes")) == (0.5, 1.2)
    page = table.page([row])
    assert lines(page, "tweed, TCP | 2 | 100 MB | 50.0 MB | 0.50 | 120.0 MB | 1.20")
    assert lines(page, "at most 1 more copy", "0.50", "yes")


def test_the_kernels_figures_of_memory_are_read() -> None:
    text = "VmPeak:\t  999 kB\nVmHWM:\t   123 kB\nVmRSS:\t    45 kB\n"
    assert (footprint.kilobytes(text, "VmHWM"), footprint.kilobytes(text, "VmRSS")) == (123, 45)


def test_attach_is_set_against_ddp_on_the_same_group() -> None:
    took = {
        "no exchange": 1.0,
        "DDP on Gloo": 4.0,
        "attach on Gloo": 3.0,
        "DDP on tweed": 2.0,
        "attach on tweed": 2.1,
    }
    page = table.page([timed("training step of digits", 4, 1024, *pair) for pair in took.items()])
    assert lines(page, "| digits | this host | 2.00x | -25.0% | **+5.0%** |")
    assert len(lines(page, "| digits | this host | 4 | 1 KB |")) == len(took)


def test_cases_keep_their_sides_together() -> None:
    rows = compared("broadcast", 4, MB, 0.002, 0.004, 0.001)
    page = table.page(rows)
    assert lines(page, "broadcast", "| 2.00 ms / 2.00 ms |", "**0.500x**", "2.00x", "20 / 20 / 20")
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
    rows = list(memory.rows(output))
    assert [(row["of"], row["side"], row["gb_per_s"]) for row in rows] == [
        ("limits, 100 MB", "read (sum of u64)", 16.5),
        ("float32 SUM", "2 sources, memory", 20.1),
    ]


def test_schedules_and_simulator_have_their_tables() -> None:
    page = table.page([*schedules.built((4,)), *schedules.events((4,))])
    section = page.partition("## The simulator")[2]
    assert lines(page, "| ring | 4 | 24 |", "µs")
    assert lines(section, "ring", "| 4 |")


def others(rank: int, ranks: int) -> list[Measurement]:
    return [
        *collectives._others(rank, ranks, 4096, TINY),
        *training._steps(rank, ranks, ("digits", "shakespeare"), TINY),
    ]


def test_live_every_side_has_its_row() -> None:
    rows = list(run.timings(others, 2))
    assert {row["calls"] for row in rows} == {4}
    page = table.page(rows)
    for word in (*collectives._OTHERS, "DDP on Gloo", "attach on Gloo", "attach on tweed"):
        assert word in page


def test_live_openmpi_takes_its_turns_on_one_host() -> None:
    sizes = (4096, MB)
    rows = [mpi.about(2), *run.timings(collectives._all_reduce, 2, sizes, TINY, launch=mpi.launch)]
    assert {row["calls"] for row in rows[1:]} == {4}
    found = cases(rows, "all_reduce")
    assert [set(case.sides) for case in found] == [{"gloo", "openmpi", "tweed", "tweed.empty"}] * 2
    assert "add in place" in table.page(rows)


def failing(rank: int, ranks: int) -> list[Measurement]:
    raise ValueError("this rank has had enough")


def test_live_a_rank_of_mpirun_that_fails_is_heard() -> None:
    with pytest.raises(RuntimeError, match="this rank has had enough"):
        list(run.timings(failing, 1, launch=mpi.launch))


def test_live_a_network_has_its_rows_or_says_why_not() -> None:
    rows = list(networks.all_reduces((networks.Scope("congestion=cubic", MB, TINY),)))
    if rows[0]["part"] == "no testbed":
        assert rows[0]["why"]
        return
    (case,) = cases(rows, networks.PART)
    assert set(case.sides) == {"gloo", "tweed"}
    assert all(row["sent_bytes_per_call"] > linked.least_bytes(case) for row in case.sides.values())
    assert rows[-1]["sent_packets"] > 0


def test_live_memory_is_watched() -> None:
    before = footprint._proportional()
    with mmap.mmap(-1, 32 * MB) as held:  # fresh from the kernel: what malloc has kept would not show
        with footprint._watched() as seen:
            held.write(b"x" * (32 * MB))
        assert max(seen) - before > 16 * MB


def counting(rank: int, ranks: int) -> list[Measurement]:
    order: list[str] = []
    sides = [Contender(side, lambda side=side: order.append(side)) for side in "ab"]
    measured = benchmark(sides, TINY, lockstep=True)
    assert order[-8:] == list("aabbbbaa")
    return [Measurement("order", 0, measured)]


def test_live_sides_take_turns() -> None:
    assert {row["side"] for row in run.timings(counting, 2)} == {"a", "b"}


def message(side: str, network: str, seconds: float, size_bytes: int = 64 * MB) -> Row:
    return timed(ltp.PART, 2, size_bytes, side, seconds) | {
        "network": network,
        "cpu_s_per_gb": {"sender": 0.3, "receiver": 0.25},
        "sent_packets": 0 if side == "TCP" else 1000,
        "lost_packets": 0 if side == "TCP" else 3,
        "packet_bytes": 0 if side == "TCP" else 1472,
    }


def test_messages_over_ltp_stand_beside_tcp() -> None:
    free, slow = "congestion=cubic", "rate=1gbit,congestion=cubic"
    seconds = {
        "TCP": 0.04,
        "LTP in the clear": 0.03,
        "LTP, AES-128-GCM": 0.05,
        "LTP, ChaCha20-Poly1305": 0.08,
    }
    page = table.page(
        [message(side, free, seconds[side]) for side in ltp.SIDES]
        + [message(side, slow, 0.6 if side == "LTP in the clear" else 0.55) for side in ltp.SIDES]
    )
    assert lines(page, free, "LTP in the clear", "17.9", "1.33x", "0.300, 0.250", "3 / 1000", "1472")
    assert lines(page, free, "AES-128-GCM", "12 Gbit/s", "10.7", "**no**")
    assert lines(page, free, "ChaCha20-Poly1305", "6 Gbit/s", "6.71", "yes")
    assert lines(page, free, "LTP in the clear", "1x one TCP stream", "1.33x one TCP stream", "yes")
    assert lines(page, free, "AES-128-GCM", "0.800x one TCP stream", "only to be stated")
    assert lines(page, slow, "LTP in the clear", "0.95x one TCP stream", "0.917x one TCP stream", "**no**")
    assert lines(page, slow, "AES-128-GCM", "0.95x one TCP stream", "1.00x one TCP stream", "yes")


def test_parts_measured_anew_stand_beside_the_others() -> None:
    env = machine.environment()
    before = [env, {"part": "a", "figure": 1}, {"part": "b", "figure": 1}]
    rows = run.replaced(before, [env | {"only": "a"}, {"part": "a", "figure": 2}])
    rows = run.replaced(rows, [env | {"only": "a"}, {"part": "a", "figure": 3}])
    assert [row["figure"] for row in rows if "figure" in row] == [1, 3]
    assert sum("only" in row for row in rows) == 1
    assert lines(table.page(rows), "## The machine") and lines(table.page(rows), "## Measured anew: a")


def test_what_ltp_uses_of_a_long_lossy_link_is_a_goal() -> None:
    scope = ltp.LONG[0]
    network = str(Network.parse(scope.network))
    bound_s = scope.size_bytes * 8 / 1e8
    for seconds, mark in ((bound_s / 0.86, "yes"), (bound_s / 0.84, "**no**")):
        times = zip(scope.sides, (9.0, seconds), strict=True)
        page = table.page([message(side, network, s, scope.size_bytes) for side, s in times])
        (line,) = lines(page, "0.85 of the link")
        assert mark in line, line


def test_shares_of_one_link() -> None:
    assert shared.moved([1.0, 2.0, 2.0], 0.5, 4.0) == 0.5 + 1 + 0.5
    row = {"part": shared.PART, "network": "rate=100mbit", "rate_bits": 1e8, "ltp_bits_per_s": 4e7}
    row |= {"tcp_bits_per_s": 5e7, "ltp_lost_packets": 1, "ltp_sent_packets": 9}
    assert lines(table.page([row]), "40.0%", "50.0%", "1 / 9")


def test_a_turn_of_ltp_becomes_a_row() -> None:
    scope = ltp.Scope("congestion=cubic", MB, rounds=2, calls=2)
    turn = {"calls_s": [0.1, 0.3], "median_s": 0.1, "cpu_s_per_gb": {"sender": 1.0, "receiver": 2.0}}
    turn |= {"sent_packets": 10, "lost_packets": 1, "packet_bytes": 1472}
    row = ltp.row(scope, "LTP in the clear", [turn, turn | {"calls_s": [0.2, 0.4], "median_s": 0.2}])
    assert (row["calls"], row["median_s"], row["p99_s"]) == (4, 0.25, 0.4)
    assert (row["sent_packets"], row["lost_packets"], row["block_medians_s"]) == (20, 2, [0.1, 0.2])
    assert row["cpu_s_per_gb"] == {"sender": 1.0, "receiver": 2.0}


def test_kernels_that_choose_numbers_are_judged_by_the_copy_and_by_torch() -> None:
    output = """limits, 25 numbers
  copy, streaming                 30.0 GB/s      6.00 ms

Avx2
  top-k, constant                 20.0 GB/s      5.00 ms
  threshold                       15.0 GB/s      7.00 ms
  threshold, fed                  18.0 GB/s      9.00 ms
"""
    spans = {"torch.topk": 0.2, "tweed": 0.008}
    beside = [
        {"part": sparse.TOP_K, "input": "constant", "side": side, "least_s": s} for side, s in spans.items()
    ]
    page = table.page([*beside, *(figure.row(sparse.KERNELS) for figure in example.figures(output))])
    assert lines(page, "top-k, constant, tweed", "30x torch.topk", "25.0x torch.topk", "**no**")
    assert lines(page, "top-k, constant, kernel, Avx2", "20x torch.topk", "40.0x torch.topk", "yes")
    assert lines(page, "| threshold, Avx2 |", "0.50", "**no**")
    assert lines(page, "| threshold, fed, Avx2 |", "0.60", "yes")
    assert lines(page, "| Avx2 | threshold, fed | 9.00 ms | 18.0 | 0.60 |")


def test_a_recording_is_cut_into_its_messages() -> None:
    said = stranger.cut(b"p" * 12 + b"\1\0\2ab" + b"\1\0\1c")
    assert said == (b"p" * 12, b"\1\0\2ab", b"\1\0\1c")


def test_strangers_are_set_against_quiet_steps() -> None:
    quiet, attacked = admission.Block([0.01, 0.02], 0, 1.0), admission.Block([0.01, 0.05], 3 * MB, 1.0)
    slower = admission.Block([0.02, 0.03], MB, 1.0)
    seen = [
        admission.Seen([quiet], [attacked], 7, {"garbled": 3}),
        admission.Seen([slower], [slower], 0, {"garbled": 1, "secret": 3}),
    ]
    row = admission.row("garbage", 200.0, seen)
    assert (row["quiet_median_s"], row["attacked_p99_s"], row["callers"]) == (0.025, 0.05, 7)
    assert (row["grown_bytes"], row["refused"]) == (3 * MB, {"garbled": 4, "secret": 3})
    page = table.page([row])
    assert lines(page, "| garbage | 7, 200 a second | 4 garbled, 3 secret |", "**1.40x**", "| 3.0 MB |")


def test_live_strangers_are_refused() -> None:
    rates = dict.fromkeys(("garbage", "a handshake heard before", "wrong secret"), 100.0)
    for row in admission.besieged(admission.Siege(1, 0.2, rates)):
        assert row["callers"] > 0 and sum(row["refused"].values()) > 0, row


def test_factors_stand_beside_what_sends_less_and_more() -> None:
    rows = [
        timed(factors.PART, 4, 40 * MB, side, span) | {"network": "rate=100mbit", "sent_bytes_per_call": sent}
        for side, span, sent in (("DDP on Gloo", 5.0, 60 * MB), ("factors", 0.4, 4 * MB))
    ]
    page = table.page(rows)
    assert lines(page, "| DDP on Gloo |", "| 5.00 s |", "| 60 MB |")
    assert lines(page, "| factors |", "| 400 ms |", "| 4 MB |")
