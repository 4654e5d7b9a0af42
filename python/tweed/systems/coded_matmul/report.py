"""Goals and tables of the experiment on coded products. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10
from statistics import fmean

from tweed.data.coding.product_times import best_k
from tweed.data.coding.times import Stragglers
from tweed.report.comparison import Goal, goals, missing, number
from tweed.report.notes import Line, find, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.coded_matmul.contenders import LARGE, MUS, SMALL, THEORY
from tweed.systems.coded_matmul.measured_live import drawn_s

#: The day since when the goals stand.
FIXED = "2026-11-28"
#: How far a product may be off, beside its largest value.
OFF = {"float64": 1e-10, "float32": 1e-4}
#: Products among which the time of encoding is shared.
PRODUCTS = 2000


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    found = [*_exact(lines), *_times(lines), *_costs(lines), *_live(lines)]
    parts = [Section("Goals", tables=[goals(found, fixed=FIXED)])]
    parts += [_simulated(lines), _lively(lines), _codes(lines), _cost(lines), _words()]
    return Study("Coded products", "Any k of n coded parts give a product of a matrix.", parts)


def _exact(lines: Sequence[Line]) -> Iterator[Goal]:
    for dtype, off in OFF.items():
        mine = [line for line in where(lines, kind="subsets", dtype=dtype) if line["n"] <= 12]
        goal = f"{dtype}: every subset up to 12 parts gives the product to {off:g}"
        yield _worst(goal, mine, off)
    mine = where(lines, kind="subsets", n=LARGE[0])
    yield _worst(f"float64: drawn subsets of a {LARGE} code to {OFF['float64']:g}", mine, OFF["float64"])
    goal = "a code that loses more than 6 digits is refused: Chebyshev points for 100 parts"
    line = find(lines, kind="condition", n=LARGE[0], points="chebyshev")
    lost = f"{log10(line['worst']):.1f} digits" if line else ""
    yield (
        (goal, f"{lost}, {'refused' if line['refused'] else 'taken'}", bool(line["refused"]))
        if line
        else missing(goal)
    )


def _worst(goal: str, lines: Sequence[Line], off: float) -> Goal:
    if not lines:
        return missing(goal)
    worst, count = max(line["error"] for line in lines), sum(line["subsets"] for line in lines)
    refused = sum(line["refused"] for line in lines)
    more = f", {refused} waited for another part" if refused else ""
    return goal, f"{worst:.0e} of {count:,}{more}", worst <= off


def _times(lines: Sequence[Line]) -> Iterator[Goal]:
    n = LARGE[0]
    known = [line for line in where(lines, kind="simulated", n=n) if line["expected"]]
    off = [abs(line["seconds"] / line["expected"] - 1) for line in known]
    goal = f"{n} workers: simulated means within 2 % of the expected ones"
    yield (goal, f"at most {max(off):.1%} off", max(off) <= 0.02) if off else missing(goal)
    apart = [abs(line["quickest"] - line["share"] * n) for line in where(lines, kind="k", n=n)]
    goal = f"{n} workers: the quickest k is within 2 of what Lambert's function gives"
    yield (goal, f"at most {max(apart):.1f} apart", max(apart) <= 2) if apart else missing(goal)
    goal, times = f"{n} workers, mu 1: 1.9× as quick as uncoded, with decoding", _speedup(lines, "uncoded")
    yield (goal, f"{times:.2f}× (theory 1.98)", times >= 1.9) if times else missing(goal)
    for scheme, words in (("replicated", "the best replication"), ("speculative", "speculation")):
        goal, times = f"{n} workers, mu 1: quicker than {words}, with decoding", _speedup(lines, scheme)
        yield (goal, f"{times:.2f}×", times > 1) if times else missing(goal)
    for mu, theory in THEORY.items():
        goal = f"{SMALL} workers, mu {mu:g}, simulated: within 2 % of theory, {theory} as quick as uncoded"
        pair = [find(lines, kind="simulated", n=SMALL, mu=mu, scheme=name) for name in ("uncoded", "coded")]
        ratio = pair[0]["seconds"] / pair[1]["seconds"] if pair[0] and pair[1] else None
        yield (goal, f"{ratio:.2f}×", abs(ratio / theory - 1) <= 0.02) if ratio else missing(goal)


def _speedup(lines: Sequence[Line], scheme: str) -> float | None:
    """How many times as long as coded, with decoding, at mu 1; None if it was not measured."""
    other, coded = (
        find(lines, kind="simulated", n=LARGE[0], mu=1.0, scheme=name) for name in (scheme, "coded")
    )
    cost = find(lines, kind="costs", n=LARGE[0])
    if not (other and coded and cost):
        return None
    seconds: float = other["seconds"] / (coded["seconds"] + cost["decode_s"] / cost["whole_s"])
    return seconds


def _costs(lines: Sequence[Line]) -> Iterator[Goal]:
    shares = _shares(lines)
    goal = f"{LARGE[0]} workers, mu 1: decoding is at most a tenth of the time"
    yield (goal, f"{shares[0]:.1%}", shares[0] <= 0.1) if shares else missing(goal)
    goal = f"encoding and decoding are at most a tenth of the time of {PRODUCTS:,} products"
    yield (goal, f"{shares[1]:.1%}", shares[1] <= 0.1) if shares else missing(goal)


def _shares(lines: Sequence[Line]) -> tuple[float, float] | None:
    """The share of a product's time that decoding takes, and that of both with encoding over `PRODUCTS`."""
    cost = find(lines, kind="costs", n=LARGE[0])
    coded = find(lines, kind="simulated", n=LARGE[0], mu=1.0, scheme="coded")
    if not (cost and coded):
        return None
    computing, decode_s = coded["seconds"] * cost["whole_s"], cost["decode_s"]
    both = decode_s + cost["encode_s"] / PRODUCTS
    return decode_s / (computing + decode_s), both / (computing + both)


def _live(lines: Sequence[Line]) -> Iterator[Goal]:
    for mu, theory in THEORY.items():
        goal = f"{SMALL} live workers, mu {mu:g}: 0.95 of theory, {theory} as quick as uncoded"
        uncoded, coded = (_seconds(lines, mu, key) for key in ("uncoded", "coded"))
        times = uncoded / coded if uncoded and coded else None
        if times is None:
            yield missing(goal)
            continue
        drawn = _drawn(lines, mu, SMALL) / _drawn(lines, mu, best_k(SMALL, Stragglers(1.0, mu)))
        words = f"{times:.2f}× (theory for the times that were drawn {drawn:.2f})"
        yield goal, words, times >= 0.95 * theory


def _taken(lines: Sequence[Line], mu: float, scheme: str) -> list[float]:
    """Seconds of all live products."""
    mine = where(lines, kind="live", n=SMALL, mu=mu, scheme=scheme)
    return [seconds for line in mine for seconds in line["seconds"]]


def _seconds(lines: Sequence[Line], mu: float, scheme: str) -> float | None:
    """The mean of a live product; None if it was not measured."""
    taken = _taken(lines, mu, scheme)
    return fmean(taken) if taken else None


def _drawn(lines: Sequence[Line], mu: float, k: int) -> float:
    """The mean that the model has for the same times, where k parts are enough."""
    mine = where(lines, kind="live", n=SMALL, mu=mu, scheme="coded")
    return fmean(drawn_s(SMALL, k, mu, len(line["seconds"]), line["seed"]) for line in mine)


def _lively(lines: Sequence[Line]) -> Section:
    """Live times beside those that the model expects."""
    rows, mine = [], where(lines, kind="live")
    for mu, scheme in [(mu, scheme) for mu in values(mine, "mu") for scheme in values(mine, "scheme")]:
        simulated = find(lines, kind="simulated", n=SMALL, mu=mu, scheme=scheme)
        seconds, first = sorted(_taken(lines, mu, scheme)), _seconds(lines, mu, "uncoded")
        cells = [number(fmean(seconds)), number(seconds[int(0.99 * len(seconds))])]
        beside = [number(simulated["seconds"]) if simulated else "–"]
        gain = [f"{first / fmean(seconds):.2f}×" if first else "–"]
        rows.append([f"{mu:g}", scheme, f"{len(seconds)}", *cells, *beside, *gain])
    head = [
        "mu",
        "scheme",
        "products",
        "mean (s)",
        "99th percentile (s)",
        "simulated (s)",
        "as quick as uncoded",
    ]
    over_s = sum(line["over_s"] for line in where(mine, scheme="coded"))
    words = (
        f"Products of each scheme in turns, by {SMALL} processes that stand, over `map_tasks`. "
        "Their computing is slept, as long as the model draws, the same for all schemes; the product is "
        f"computed within it, which took {number(over_s)} s longer than that in sum. Times are of the "
        "launcher: with messages, and decoding.",
        "Speculation is that of `map_tasks`: a part that takes twice the median gets another copy, with a "
        "time of its own, on a worker that is done.",
        "Where a live goal is missed, the times that were drawn say by how much chance is in it: of 200 "
        "products the means still vary by 3 %. Messages, decoding and late wake-ups take 10 to 25 ms each.",
    )
    return Section("Live", tables=[Table("", head, rows)], words=words)


def _simulated(lines: Sequence[Line]) -> Section:
    mine = where(lines, kind="simulated")
    rows = []
    for n, mu in [(n, mu) for n, rates in MUS.items() for mu in rates]:
        best = find(lines, kind="k", n=n, mu=mu)
        cells = [_cell(find(mine, n=n, mu=mu, scheme=scheme)) for scheme in values(mine, "scheme")]
        shown = f"{best['quickest']}, {best['share'] * n:.1f}" if best else "–"
        rows.append([f"{n}", f"{mu:g}", *cells, shown])
    head = ["workers", "mu", *values(mine, "scheme"), "quickest k, by Lambert"]
    title = "n times the mean seconds (99th percentile), without decoding"
    return Section("By the model of delays", tables=[Table(title, head, rows)])


def _cell(line: Line | None) -> str:
    return f"{number(line['n'] * line['seconds'])} ({number(line['n'] * line['p99_s'])})" if line else "–"


def _codes(lines: Sequence[Line]) -> Section:
    rows = [
        [
            f"({line['n']}, {line['k']})",
            line["points"],
            f"{line['worst']:.1e}",
            "yes" if line["refused"] else "no",
        ]
        for line in where(lines, kind="condition")
    ]
    head = ["code", "points", "worst condition number", "refused at 6 digits"]
    return Section("Codes", tables=[Table("Of a thousand drawn subsets", head, rows)])


def _cost(lines: Sequence[Line]) -> Section:
    rows = [
        [
            f"{line['height'] * line['k']:,} x {line['columns']:,}",
            number(line["whole_s"]),
            f"{1000 * line['decode_s']:.2f}",
            number(line["encode_s"]),
        ]
        for line in where(lines, kind="costs")
    ]
    head = ["matrix, float64", "its product on one worker (s)", "decoding (ms)", "encoding (s)"]
    return Section("What coding costs", tables=[Table("", head, rows)])


def _words() -> Section:
    words = (
        "All of the product takes one worker a second, and an exponential time with rate mu more; a part "
        "with 1/k of the rows takes 1/k of both. Workers begin at once.",
        "Replication has the number of copies that is best. Speculation: a part that runs longer than 95 % "
        "of all do gets a copy, with a time of its own, on a worker that is done.",
        "Decoding and encoding are measured on this machine, with numpy, in the process that needs the "
        "product; encoding on some of the columns. Both are put beside a simulated product at mu 1, of which "
        "the fixed second is as long as this matrix' product was measured to take on one worker.",
        "Decoding costs up to k (n - k) multiplications per row of a part, whatever the columns: with few "
        "columns it costs more than coding saves.",
        "The matrix' size was chosen after a first look, at half the rows and on a busy machine, in which "
        "decoding took 4.5 % of the time, and coded products were 1.89 times as quick as uncoded ones.",
        "Encoding is bound by computing: n - k parts, each the sum of k blocks, are 86 GFLOP here, and numpy "
        "does some 15 a second on a core. More products of one matrix make its share less, or several cores.",
    )
    return Section("To keep in mind", words=words)
