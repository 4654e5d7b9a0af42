"""The claims of the MultiTree paper and what must be shown beyond them, and whether they were met. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product

from tweed.report.comparison import Goal, goals, missing, number
from tweed.report.notes import Line, where
from tweed.report.study import Table
from tweed.simulate import models
from tweed.systems.multitree.report_bounds import WORDS, over
from tweed.systems.multitree.schedules import (
    BEST,
    LARGE,
    PHASES,
    SMALL,
    TRAINED,
    UNEVEN,
    Cell,
    Times,
    ratio,
    weak,
)

#: Steps of a phase in our own greedy over the published description; BiGraph: what must be bettered.
STEPS = {"torus 4x4": 5, "torus 8x8": 17, "mesh 4x4": 8, "mesh 8x8": 32, "fat-tree 64": 63}
TAILS = {"BiGraph 32": 43, "BiGraph 64": 91}
#: In D/b, for large messages; the public best, or what splitting chunks must better.
AHEAD = {"mesh 4x4": 0.675, "mesh 8x8": 0.675, "mesh 9x9": 0.675, "torus 4x4": 0.625, "torus 8x8": 0.531}
GRIDS = ("torus 4x4", "torus 8x8", "mesh 4x4", "mesh 8x8")
SWITCHED = ("fat-tree 64", "BiGraph 32", "BiGraph 64")


def verdicts(lines: Sequence[Line]) -> Table:
    """A row per claim: what was claimed, what came out, met or not; a dash where nothing was measured."""
    times, whole = Times(lines), Times(lines, sliced=False)
    found = [
        *_trees(lines),
        *_against_rings(whole),
        *_trees_last(whole),
        *_switches(whole),
        *_heads(whole),
        *_models(whole),
        *_training(whole),
        *_scaling(whole),
        *_ahead(times),
        *_small(times),
        *_bounds(lines, times),
        *_robust(lines),
        *_growth(lines),
    ]
    return goals(found, "claim")


def _trees(lines: Sequence[Line]) -> Iterator[Goal]:
    found = {line["network"]: line for line in where(lines, kind="trees")}
    if found:
        right = all(t["sends"] == t["ranks"] * (t["ranks"] - 1) and not t["crowded"] for t in found.values())
        what = "so on each" if right else "not so"
        yield f"N (N − 1) edges, no link used twice in a step, on {len(found)} networks", what, right
        turned = all(line["reversed"] for line in found.values())
        yield "all-gather is reduce-scatter turned round", "so on each" if turned else "not so", turned
    for name, steps in STEPS.items():
        if name in found:
            took = found[name]["steps"]
            yield f"{name}: {steps} steps a phase", f"{took}", took <= steps
    for name, steps in TAILS.items():
        if name in found:
            took = found[name]["steps"]
            yield f"{name}: fewer than {steps} steps", f"{took}", took < steps


def _at_least(goal: str, factor: float | None, least: float) -> Goal:
    return missing(goal) if factor is None else (goal, f"{factor:.2f}×", factor >= least)


def _over(times: Times, network: str, slow: str, quick: str, size: int) -> float | None:
    pair = (times.seconds(Cell(network, "all_reduce", side), size) for side in (slow, quick))
    return ratio(*pair)


def _against_rings(times: Times) -> Iterator[Goal]:
    for side, least in (("ring", 3.0), ("ring_2d", 1.4)):
        goal = f"torus 8x8, 64 MiB: at least {least:g}× as fast as {side}"
        yield _at_least(goal, _over(times, "torus 8x8", side, "multitree", LARGE), least)


def _trees_last(times: Times) -> Iterator[Goal]:
    last, shares = "double_binary_tree", {}
    for name in GRIDS:
        sides = [
            times.share(Cell(name, "all_reduce", side), LARGE)
            for side in (last, "ring", "ring_2d", "multitree")
        ]
        if all(side is not None for side in sides):
            shares[name] = sides
    if shares:
        what = ", ".join(f"{name} {sides[0]:.2f} D/b" for name, sides in shares.items())
        goal = "64 MiB on torus and mesh: the double binary tree is the last of the paper's schemes"
        yield goal, what, all(sides[0] == max(filter(None, sides)) for sides in shares.values())


def _switches(times: Times) -> Iterator[Goal]:
    for name in (name for name in SWITCHED if name in times.networks()):
        for side in ("ring", "hdrm", "halving_doubling"):
            factor = _over(times, name, side, "multitree", SMALL)
            if factor is not None:
                yield f"{name}, 32 KiB: faster than {side}", f"{factor:.2f}×", factor > 1
        factor = _over(times, name, "multitree", "ring", LARGE)
        if factor is not None:
            yield f"{name}, 64 MiB: within 5 % of the ring", f"{factor:.3f}× its time", factor <= 1.05


def _heads(times: Times) -> Iterator[Goal]:
    goal = "one head per message instead of per 256 B: at least 5 % on the 8x8 torus, 64 MiB"
    pair = [
        times.seconds(Cell(TRAINED, "all_reduce", "multitree", packets), LARGE) for packets in (True, False)
    ]
    factor = ratio(*pair)
    yield missing(goal) if factor is None else (goal, f"{100 * (factor - 1):.1f} %", factor >= 1.05)


def _models(times: Times) -> Iterator[Goal]:
    """Mean over models of the time of all their all-reduces."""
    for side, plain, messages in (("ring", 2.2, 2.3), ("ring_2d", 1.51, 1.56)):
        for packets, least in ((True, plain), (False, messages)):
            factors = [_exchanged(times, model, side, packets) for model in models.MODELS]
            known = [factor for factor in factors if factor is not None]
            how = "with packets" if packets else "with messages"
            goal = f"torus 8x8, mean over models: {least:g}× over {side}, {how} (paper: 7 models, here 4)"
            yield _at_least(goal, statistics.fmean(known) if known else None, least)


def _exchanged(times: Times, model: str, side: str, packets: bool) -> float | None:
    steps = [
        times.step(Cell(TRAINED, "all_reduce", builder, flow), model, overlap=False)
        for builder, flow in ((side, True), ("multitree", packets))
    ]
    return ratio(*(None if step is None else step.exchange_s for step in steps))


def saved(times: Times, model: str, side: str, overlap: bool, ours: str = "multitree") -> float | None:
    """The share of a training step that goes away when `side`, with packets, is replaced."""
    pair = [
        times.step(Cell(TRAINED, "all_reduce", builder, flow), model, overlap)
        for builder, flow in ((ours, False), (side, True))
    ]
    factor = ratio(*(None if step is None else step.seconds for step in pair))
    return None if factor is None else 1 - factor


def _training(times: Times) -> Iterator[Goal]:
    claims = {
        ("ring", False): (("AlexNet", "ResNet-50"), 0.34, ("Transformer", "NCF"), 0.81),
        ("ring_2d", False): (("AlexNet", "ResNet-50"), 0.15, ("Transformer", "NCF"), 0.30),
        ("ring", True): (("AlexNet", "ResNet-50"), 0.10, ("Transformer", "NCF"), 0.50),
        ("ring_2d", True): (("AlexNet", "ResNet-50"), 0.10, ("Transformer", "NCF"), 0.27),
    }
    for (side, overlap), (vision, few, others, many) in claims.items():
        for group, claimed in ((vision, few), (others, many)):
            how = "overlapped" if overlap else "one after the other"
            goal = f"training step, {how}, best of {' and '.join(group)}: −{claimed:.0%} against {side}"
            shares = [saved(times, model, side, overlap) for model in group]
            known = {model: share for model, share in zip(group, shares, strict=True) if share is not None}
            what = ", ".join(f"{model} −{share:.0%}" for model, share in known.items())
            yield (goal, what, max(known.values()) >= claimed) if known else missing(goal)


def _scaling(times: Times) -> Iterator[Goal]:
    for side, least in (("ring", 3.0), ("ring_2d", 1.4)):
        goal = f"weak scaling, 256 ranks, 375 KiB each: about {least:g}× over {side}"
        yield _at_least(goal, _over(times, "torus 16x16", side, "multitree", weak("torus 16x16")), least)


def _ahead(times: Times) -> Iterator[Goal]:
    for name, most in AHEAD.items():
        strict = name.startswith("torus")
        goal = f"{name}, 64 MiB: {'below' if strict else 'at or below'} {most:g} D/b"
        share = times.share(Cell(name, "all_reduce", BEST), LARGE)
        if share is None:
            continue
        what = f"{share:.3f} ({times.winner(name, 'all_reduce', LARGE)})"
        yield goal, what, share < most if strict else share <= most


def _small(times: Times) -> Iterator[Goal]:
    """The pick of each size against MultiTree: what came after it must not cost where messages are short."""
    factors = [
        _over(times, name, "multitree", BEST, size)
        for name in (*GRIDS, *SWITCHED)
        for size in times.sizes(name)
        if size < 1 << 20
    ]
    known = [factor for factor in factors if factor is not None]
    if known:
        what = f"{min(known):.2f} to {max(known):.2f}× as fast"
        yield "below 1 MiB: the pick is never slower than MultiTree", what, min(known) >= 1


def _bounds(lines: Sequence[Line], times: Times) -> Iterator[Goal]:
    for collective, side in product(PHASES, ("forest", BEST)):
        names = [name for name in times.networks(collective) if name not in UNEVEN]
        found = {name: over(lines, times, Cell(name, collective, side)) for name in names}
        known = {name: factor - 1 for name, factor in found.items() if factor is not None}
        above = {name: share for name, share in known.items() if share > 0.02}
        what = f"{side}: {WORDS[collective].lower()} of 64 MiB within 2 % of the bound"
        listed = ", ".join(f"{name} {share:.1%}" for name, share in above.items())
        told = f"but for {listed}" if above else f"at most {max(known.values()):.1%}" if known else "–"
        yield f"{what} on all {len(known)} networks", told, not above if known else None


def _robust(lines: Sequence[Line]) -> Iterator[Goal]:
    runs = where(lines, kind="straggling")
    if runs:
        right = all(line["uneven_s"] is not None for line in runs)
        goal = "no deadlock and the exact sum with ranks that are late and slow by chance"
        yield goal, f"{len(runs)} runs, {'all' if right else 'not all'} right", right
    sums = sum(line["kind"] == "time" and line["seconds"] is not None for line in lines)
    if sums:
        yield "every simulated rank ends with each contribution exactly once", f"{sums:,} runs", True


def _growth(lines: Sequence[Line]) -> Iterator[Goal]:
    for builder in ("multitree", "time_expanded"):
        found = {line["ranks"]: line["seconds"] for line in where(lines, kind="building", builder=builder)}
        what = ", ".join(f"{ranks:,}: {number(seconds)} s" for ranks, seconds in found.items())
        goal = f"{builder}: trees for 1,024 ranks, proven, in under three minutes of a processor"
        yield (goal, what, found[1024] < 180) if 1024 in found else (goal, what or "–", None)
