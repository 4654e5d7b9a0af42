"""Steps under each order, the search for settings, and what Prophet is to keep to: a line of notes each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from tweed.order import AllOffered, CreditTuner, Ended, Offered, bursts, pieces
from tweed.order.base import Setting
from tweed.order.step import Iteration, iterate
from tweed.report.notes import Notes
from tweed.rng import uniform
from tweed.systems.prophet.audit import audit, idle
from tweed.systems.prophet.contenders import ONLINE, SERVER, SIDES, WHOLE, Place, Side, prophet

#: Where a search begins; the fewest bytes that it tries; the share by which it asks others to be quicker.
GRID, LEAST, QUICKER = tuple(125_000 * 4**place for place in range(5)), 15_625, 1e-3
#: ResNet-50 in Prophet's code: layers at which bursts begin, and milliseconds between them as they come.
BEGINS, GAPS_MS = (
    (144, 131, 118, 104, 91, 78, 63, 51, 36, 23, 10),
    (16, 15, 9, 10, 12, 18, 15, 21, 30, 25, 20),
)


def step(side: Side, setting: Setting, place: Place) -> Iteration:
    """A step of one side in one place."""
    wire, profile = replace(place.wire(), joined=side.joined), place.profile()
    order = side.order(setting, profile, wire)
    return iterate(order, profile, wire, piece_bytes=setting.piece_bytes)


def searched(seconds: Callable[[Setting], float], windows: bool) -> Setting:
    """The quickest setting of a grid, or one beside it by factors of two, for as long as one of these is
    quicker by 0.1 %.

    Args:
      windows: are searched too; otherwise pieces alone, and all windows are alike.

    Example:
      >>> searched(lambda setting: abs(setting.piece_bytes - 1_000_000), windows=False).piece_bytes
      1000000
    """
    wide = GRID if windows else (WHOLE,)
    grid = [Setting(piece, window) for piece in GRID for window in wide if window >= piece]
    tried = {one: seconds(one) for one in grid}
    best = min(grid, key=lambda one: (tried[one], one))
    while beside := [one for one in _beside(best, windows) if one not in tried]:
        tried |= {one: seconds(one) for one in beside}
        quickest = min(beside, key=lambda one: (tried[one], one))
        if tried[quickest] >= (1 - QUICKER) * tried[best]:
            break
        best = quickest
    return best


def _beside(one: Setting, windows: bool) -> Iterator[Setting]:
    piece, window = one
    found = [Setting(piece // 2, window), Setting(2 * piece, window)]
    found += [Setting(piece, window // 2), Setting(piece, 2 * window)] if windows else []
    return (each for each in found if LEAST <= each.piece_bytes <= each.window_bytes)


def online(place: Place) -> tuple[Setting, int]:
    """What a tuner settles at while steps go on, and how many settings it tried."""
    side = SIDES["ByteScheduler"]
    tuner = CreditTuner(first=_published(side, place), steps=1)
    state, tried = tuner.start(), set[Setting]()
    while state.setting not in tried:
        tried.add(state.setting)
        state = tuner.handle(step(side, state.setting, place).seconds, state)
    return state.setting, len(tried)


def _published(side: Side, place: Place) -> Setting:
    return side.setting if place.exchange == SERVER else side.summed or side.setting


def _settled(side: Side, place: Place) -> Setting:
    if side.pieces:
        return searched(lambda setting: step(side, setting, place).seconds, side.windows)
    return _published(side, place)


def compared(notes: Notes, place: Place, kind: str = "step", **more: object) -> None:
    """A line with each side's seconds, bytes of pieces and of the window; and the audit of Prophet's step."""
    facts = {"kind": kind, **place._asdict(), **more}
    if notes.has(**facts):
        return
    settings = {name: _settled(side, place) for name, side in SIDES.items()}
    steps = {name: step(SIDES[name], setting, place) for name, setting in settings.items()}
    settings[ONLINE], trials = online(place)
    steps[ONLINE] = step(SIDES["ByteScheduler"], settings[ONLINE], place)
    found: dict[str, Any] = {
        name: [round(steps[name].seconds, 6), *(size if size < WHOLE else None for size in setting)]
        for name, setting in settings.items()
    }
    notes.log(f"{', '.join(map(str, facts.values()))}: Prophet {found['Prophet'][0]:.3f} s")
    profile, wire = place.profile(), place.wire()
    kept = audit(steps["Prophet"], profile, wire, settings["Prophet"].piece_bytes)
    arithmetic = round(steps["FIFO"].seconds - steps["FIFO"].waiting_s, 6)
    notes.add(
        {**facts, "arithmetic_s": arithmetic, "sides": found, "trials": trials}
        | {"audit": kept, "p3_idle": idle(steps["P3"])}
    )


def misled(notes: Notes, place: Place, share: float) -> None:
    """Prophet's step where it is told a share of the link's rate, over its step with the true rate."""
    facts = {"kind": "misled", "model": place.model, "gbit": place.gbit, "share": share}
    if notes.has(**facts):
        return
    side, profile, wire = SIDES["Prophet"], place.profile(), place.wire()
    order, size = prophet(side.setting, profile, wire), side.setting.piece_bytes
    told, true = (
        iterate(order, profile, wire, piece_bytes=size, measured=each).seconds for each in (share, 1.0)
    )
    notes.add({**facts, "ratio": round(told / true, 5)})


def recognised(notes: Notes, traces: int) -> None:
    """In how many traces of ResNet-50, each gradient late by up to 50 us, all bursts are found; and how many
    bursts gradients that come evenly are."""
    if notes.has(kind="bursts"):
        return
    right = sum(_begins(_trace(seed)) == (*BEGINS, 0) for seed in range(traces))
    notes.add({"kind": "bursts", "traces": traces, "right": right, "flat": len(bursts(range(157, 0, -1)))})


def _trace(seed: int) -> list[float]:
    now_ms, profile_s = 0.0, []
    gaps = dict(zip((begin - 1 for begin in BEGINS), GAPS_MS, strict=True))
    for layer in reversed(range(157)):
        now_ms += gaps.get(layer, 0.0) + 0.05 * uniform(seed, layer)
        profile_s.append(now_ms / 1000)
    return profile_s[::-1]


def _begins(profile_s: list[float]) -> tuple[int, ...]:
    return tuple(burst.lowest for burst in bursts(profile_s))


def overhead(notes: Notes, model: str, steps: int) -> None:
    """Processor seconds of Prophet's profile and decisions in a step, and the seconds of its arithmetic."""
    if notes.has(kind="overhead", model=model):
        return
    place = Place(model, SERVER, 10.0, 0.1)
    profile, wire, setting = place.profile(), place.wire(), SIDES["Prophet"].setting
    offers = [
        Offered(piece)
        for layer in reversed(range(len(profile)))
        for piece in pieces(layer, profile[layer].numbytes, most_bytes=setting.piece_bytes, rate=wire.rate)
    ]
    taken = []
    for _ in range(steps):
        began = time.process_time()
        order = prophet(setting, profile, wire)
        state = order.handle(AllOffered(), order.start(), 0.0)
        for offer in offers:
            state = order.handle(offer, state, 0.0)
            decision, state = order.poll(state, 0.0)
            if decision is not None:
                state = order.handle(Ended(decision.key), state, 0.0)
        taken.append(time.process_time() - began)
    arithmetic_s = profile[0].ready_s + sum(layer.forward_s for layer in profile)
    notes.add({"kind": "overhead", "model": model, "decisions_s": fmean(taken), "arithmetic_s": arithmetic_s})


def sweep_place(model: str, ratio: float) -> Place:
    """Where the gradients of a model take `ratio` times as long to cross as its arithmetic."""
    profile = Place(model, SERVER, 1.0, 0.1).profile()
    arithmetic_s = profile[0].ready_s + sum(layer.forward_s for layer in profile)
    gbit = sum(layer.numbytes for layer in profile) * 8e-9 / (ratio * arithmetic_s)
    return Place(model, SERVER, round(gbit, 6), 0.1)
