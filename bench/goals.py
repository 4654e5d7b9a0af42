"""What tweed set out to reach, and what came of it. A goal is a line below; a kind of goal is a function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench import (
    aggregates,
    builders,
    emulated,
    fitting,
    flower,
    foreseen,
    hub_links,
    linked,
    ltp,
    sent,
    shared,
    sparse,
    tabled,
    tasks,
    virtual_hub,
)
from bench.cases import OURS, PEERS, cases
from bench.emulator import LOSS, PING, RATE
from bench.networks import PART
from bench.run import Row
from bench.units import digits, grid, seconds, size
from tweed.testbed import Network

KB, MB = 1 << 10, 1 << 20


class Verdict(NamedTuple):
    """A line of the table. `reached` is None where a figure is only to be stated."""

    what: str
    goal: str
    measured: str
    reached: bool | None


class OneHost(NamedTuple):
    """At least so many times as fast as a peer; a factor of 0 asks for the figure only."""

    size_bytes: int
    ranks: int
    side: str
    peer: str
    factor: float


class Between(NamedTuple):
    """The same between namespaces, 4 ranks."""

    network: str
    size_bytes: int
    factor: float


ONE_HOST = (
    OneHost(100 * MB, 2, "tweed", "gloo", 4.0),
    OneHost(100 * MB, 4, "tweed", "gloo", 4.0),
    OneHost(100 * MB, 8, "tweed", "gloo", 3.5),
    OneHost(100 * MB, 2, "tweed.empty", "gloo", 9.0),
    OneHost(100 * MB, 4, "tweed.empty", "gloo", 9.0),
    OneHost(100 * MB, 8, "tweed.empty", "gloo", 7.0),
    OneHost(4 * KB, 4, "tweed", "gloo", 30.0),
    OneHost(4 * KB, 2, "tweed", "gloo", 1.0),
    OneHost(100 * MB, 4, "tweed", "openmpi", 2.0),
    OneHost(100 * MB, 4, "tweed.empty", "openmpi", 5.0),
    OneHost(4 * KB, 2, "tweed", "openmpi", 0),
    OneHost(4 * KB, 4, "tweed", "openmpi", 0),
    OneHost(4 * KB, 8, "tweed", "openmpi", 0),
)
BETWEEN = (
    Between("rate=1gbit,congestion=cubic", 25 * MB, 1.0),
    Between("congestion=cubic", 25 * MB, 2.0),
    Between("congestion=bbr", 25 * MB, 2.0),
    *(
        Between(f"rate=1gbit,loss={loss}%,congestion={congestion}", 25 * MB, 0)
        for loss in ("0.1", "1")
        for congestion in ("cubic", "bbr")
    ),
)
#: Gbit/s of LTP between two namespaces that are not slowed, at least.
UNSHAPED = {"LTP in the clear": 15.0, "LTP, AES-128-GCM": 12.0, "LTP, ChaCha20-Poly1305": 6.0}
#: Of one TCP stream's rate, at least; where nothing else limits them, it need not be reached with a seal.
SHARE_OF_TCP = 0.95
SHARE_OF_IPERF3 = 0.98
#: Of the link's rate, of values, where nothing may be missing and packets are lost on a long way.
SHARE_OF_LONG = 0.85
#: Of a link that it shares with one flow of cubic.
FAIR_SHARE = 1 / 3
COPIES = 1.0
#: Times torch.topk, on each input.
TOP_K = {"tweed": 30.0, "kernel, Avx512": 30.0, "kernel, Avx2": 20.0}
#: A rule that judges each number, in plain sums of the same contributions, at most; and times ByzFL.
RULE_IN_SUMS, TIMES_BYZFL = 4.0, 50.0
#: A rule that judges contributions as a whole.
TIMES_BYZFL_WHOLE = 10.0
#: Of the rate of a copy past the cache.
SHARE_OF_COPY = 0.55
#: Median share by which predicted times may be off, of all and of short buffers.
OFF, OFF_SHORT = 0.10, 0.25
#: Of ten picks on networks that were not looked at before, so many are the best or within 5 % of it.
PICKS_OF_TEN = 9
#: Two sites: at 25 MB at least so many times Gloo, and at no size behind the ring by more than this.
SITES_TIMES_GLOO, SITES_BEHIND_RING = 2.0, 1.05
#: CPU seconds to build and check a schedule for an uneven network, by builder and ranks, at most.
BUILD_S = {
    ("multitree", 512): 60.0,
    ("multitree", 1024): 180.0,
    ("time_expanded", 512): 60.0,
    ("time_expanded", 1024): 180.0,
    ("forest", 64): 60.0,
}
#: Seconds of CPU for 100,000 contributions of 10,000 virtual members, each an update, at most.
VIRTUAL_HUB_S = 60.0
#: A round of federated averaging, times Flower's simulator.
TIMES_FLOWER = 5.0
_JUDGED = ("threshold", "threshold, fed", "top-k, fed", "add", "gaps, encode", "gaps, decode")


def goals(rows: Sequence[Row]) -> str:
    """Each goal for which there are rows; by medians."""
    kinds = (
        _one_host,
        _beside_iperf3,
        _between,
        _messages,
        _fair,
        _memory,
        _testbed,
        _top_k,
        _sparse,
        _rules,
        _foreseen,
        _between_sites,
        _built,
        _virtual,
        _tasks,
    )
    body = [_line(verdict) for kind in kinds for verdict in kind(rows)]
    return f"## Goals\n\n{grid(('of', 'goal', 'measured', 'reached'), body)}" if body else ""


def _line(verdict: Verdict) -> Sequence[str]:
    mark = {True: "yes", False: "**no**", None: "only to be stated"}[verdict.reached]
    return (verdict.what, verdict.goal, verdict.measured, mark)


def _factor(what: str, peer: str, goal: float, measured: float) -> Verdict:
    reached = measured >= goal if goal else None
    return Verdict(what, f"{goal:g}x {peer}" if goal else "", f"{digits(measured)}x {peer}", reached)


def _one_host(rows: Sequence[Row]) -> Iterator[Verdict]:
    found = {(case.size_bytes, case.ranks): case for case in cases(rows, "all_reduce")}
    for goal in ONE_HOST:
        case = found.get(goal[:2])
        if case and goal.peer in case.sides:
            what = f"all_reduce of {size(goal.size_bytes)}, {goal.ranks} ranks, {OURS[goal.side]} tensors"
            yield _factor(what, PEERS[goal.peer], goal.factor, case.times(goal.side, goal.peer))


def _between(rows: Sequence[Row]) -> Iterator[Verdict]:
    found = {(case.network, case.size_bytes): case for case in cases(rows, PART)}
    for goal in BETWEEN:
        if case := found.get(goal[:2]):
            what = f"all_reduce of {size(goal.size_bytes)} between {case.ranks} namespaces, `{goal.network}`"
            yield _factor(what, "Gloo", goal.factor, case.times("tweed", "gloo"))


def _beside_iperf3(rows: Sequence[Row]) -> Iterator[Verdict]:
    for case in cases(rows, PART):
        share = linked.against_iperf3(case, rows)
        if share is not None:
            what = f"all_reduce of {size(case.size_bytes)} between {case.ranks} namespaces, `{case.network}`"
            goal = f"{SHARE_OF_IPERF3} of iperf3's four flows"
            yield Verdict(what, goal, f"{share:.3f}", share >= SHARE_OF_IPERF3)


def _messages(rows: Sequence[Row]) -> Iterator[Verdict]:
    for case in cases(rows, ltp.PART):
        for side in filter(UNSHAPED.__contains__, case.sides):
            network = Network.parse(case.network)
            shaped = network.rate_bits is not None
            what = f"one message of {size(case.size_bytes)} between two namespaces, `{case.network}`, {side}"
            if not shaped:
                rate = sent.gbit_per_s(case, side)
                yield Verdict(what, f"{UNSHAPED[side]:g} Gbit/s", f"{digits(rate)}", rate >= UNSHAPED[side])
            if rate_bits := network.delay_ms and network.rate_bits:
                share = sent.gbit_per_s(case, side) * 1e9 / rate_bits
                yield Verdict(what, f"{SHARE_OF_LONG} of the link", f"{share:.3f}", share >= SHARE_OF_LONG)
            goal = SHARE_OF_TCP if shaped else float(side == "LTP in the clear")
            yield _factor(what, "one TCP stream", goal, case.times(side, "TCP"))


def _fair(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        if row["part"] == shared.PART and "cubic" in row["network"]:
            kept = row["ltp_bits_per_s"] / row["rate_bits"]
            what = f"LTP beside a flow of cubic, `{row['network']}`"
            yield Verdict(what, f"{FAIR_SHARE:.2f} of the link", f"{kept:.2f}", kept >= FAIR_SHARE)


def _memory(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        if row["part"] == "extra memory" and row["side"].startswith("tweed"):
            copies = tabled.copies(row, "proportional_bytes")
            what = (
                f"extra memory of an all_reduce of {size(row['bytes'])}, {row['ranks']} ranks, {row['side']}"
            )
            yield Verdict(what, "at most 1 more copy", f"{copies:.2f}", copies <= COPIES)


def _testbed(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        network = f"`{row.get('network')}`"
        if row["part"] == PING:
            off = emulated.delay_off_ms(row)
            goal = f"within {emulated.DELAY_MS:g} ms"
            yield Verdict(
                f"median round trip, {network}", goal, f"{off:+.2f} ms", abs(off) <= emulated.DELAY_MS
            )
        if row["part"] == RATE:
            off, most = emulated.rate_off(row), emulated.RATE_SHARE
            yield Verdict(f"rate, {network}", f"within {most:.0%}", f"{off:+.1%}", abs(off) <= most)
        if row["part"] == LOSS:
            goal = f"within {emulated.DEVIATIONS:g} standard deviations"
            reached = abs(row["off"]) <= emulated.DEVIATIONS
            yield Verdict(f"loss, {network}", goal, f"{row['off']:+.1f}", reached)


def _top_k(rows: Sequence[Row]) -> Iterator[Verdict]:
    for kind, sides in sparse.beside_torch(rows).items():
        for side, factor in sides.items():
            yield _factor(f"top-k, {kind}, {side}", "torch.topk", TOP_K.get(side, 0), factor)


def _sparse(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        if row["part"] == sparse.KERNELS and row["side"] in _JUDGED and row["of"] != "Baseline":
            share = sparse.of_copy(row, rows)
            goal = f"{SHARE_OF_COPY} of a streaming copy"
            what = f"{row['side']}, {row['of']}"
            yield Verdict(what, goal, f"{share:.2f}", share >= SHARE_OF_COPY)


def _rules(rows: Sequence[Row]) -> Iterator[Verdict]:
    for rule, sums, times in aggregates.factors(rows):
        by_number = rule in aggregates.BY_NUMBER
        if by_number:
            goal = f"at most {RULE_IN_SUMS:g} plain sums"
            yield Verdict(rule, goal, digits(sums), sums <= RULE_IN_SUMS)
        if times is not None:
            yield _factor(rule, "ByzFL", TIMES_BYZFL if by_number else TIMES_BYZFL_WHOLE, times)


def _foreseen(rows: Sequence[Row]) -> Iterator[Verdict]:
    found = foreseen.pairs(rows)
    short = [row for row in found if row["bytes"] < foreseen.SHORT_BYTES]
    for what, some, goal in (("", found, OFF), (f" below {size(foreseen.SHORT_BYTES)}", short, OFF_SHORT)):
        if some:
            off = foreseen.median_off(some)
            said = f"predicted against measured, {len(some)} pairs of schedule, size and network{what}"
            yield Verdict(said, f"median within {goal:.0%}", f"{off:.1%}", off <= goal)
    if picked := foreseen.unseen(rows):
        right = sum(foreseen.behind(case) <= foreseen.NEAR for case in picked)
        said = f"pick the best or within 5 %, {len(picked)} networks and sizes not seen before"
        yield Verdict(said, "9 of 10", f"{right} of {len(picked)}", 10 * right >= PICKS_OF_TEN * len(picked))


def _between_sites(rows: Sequence[Row]) -> Iterator[Verdict]:
    for case in cases(rows, fitting.PART):
        if case.network.startswith("sites 4 4") and "gloo" in case.sides:
            chosen = case.sides[foreseen.pick(case)]["median_s"]
            what = f"two sites, all_reduce of {size(case.size_bytes)}, by {foreseen.pick(case)}"
            if case.size_bytes == 25 * MB:
                yield _factor(what, "Gloo", SITES_TIMES_GLOO, case.sides["gloo"]["median_s"] / chosen)
            share = chosen / case.sides["ring"]["median_s"]
            goal = "no more than 5 % slower than the ring"
            yield Verdict(what, goal, f"{1 / share:.2f}x the ring", share <= SITES_BEHIND_RING)


def _built(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in (row for row in rows if row["part"] == builders.PART):
        if row["network"] == builders.UNEVEN and (most := BUILD_S.get((row["side"], row["ranks"]))):
            took = math.inf if row["cpu_s"] is None else row["cpu_s"]
            what = f"{row['side']} built and checked, {row['network']}, {row['ranks']} ranks"
            yield Verdict(
                what, f"at most {most:g} s", "too long" if took == math.inf else seconds(took), took <= most
            )


def _virtual(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        large = row["part"] == virtual_hub.PART and row["ranks"] == virtual_hub.MEMBERS
        if large and row["side"].startswith("each") and row["contributions"] >= virtual_hub.UPDATES:
            what = f"{row['contributions']:,} updates of {row['ranks']:,} virtual members, {row['side']}"
            goal = f"at most {VIRTUAL_HUB_S:g} s of CPU"
            yield Verdict(what, goal, seconds(row["cpu_s"]), row["cpu_s"] <= VIRTUAL_HUB_S)
    if (links := hub_links.factor(rows)) is not None:
        what = "CPU of a hub for an offer and its answer, thousands of sealed members"
        goal = f"at most {hub_links.GOAL:g} times a bare echo by epoll"
        yield Verdict(what, goal, f"{links:.1f} times", links <= hub_links.GOAL)
    for steps, factor in flower.factors(rows):
        what = f"federated averaging, {flower.CLIENTS} clients, {steps} local steps"
        yield _factor(what, "Flower", TIMES_FLOWER, factor)


def _tasks(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        is_ours = row["part"] == tasks.PART and row["side"] == tasks.OURS
        if is_ours and row["where"] == tasks.HERE and not row["with_deaths"]:
            what, took = f"{row['tasks']:,} tasks of 10 ms on {tasks.WORKERS} workers", tasks.ratio(row)
            goal = f"at most {tasks.GOAL:g} times work over workers"
            yield Verdict(what, goal, f"{digits(took)} times", took <= tasks.GOAL)
    for (where, side), cost in tasks.deaths_cost(rows).items():
        if side == tasks.OURS and where == tasks.HERE:
            what, most = "the same where 5 % of the tasks kill their worker", tasks.GOAL_DEATHS
            yield Verdict(what, f"at most {most:g} times as long", f"{digits(cost)} times", cost <= most)
