"""What Prophet is to keep to, checked on a step that was simulated. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tweed.order import Piece, bursts, pieces
from tweed.order.step import Gradient, Iteration, Wire
from tweed.report.notes import Line

#: Seconds by which times may differ through rounding.
SLACK_S = 1e-9


class Sent(NamedTuple):
    """A piece that has crossed: its layer, its place there, its bytes, and from when until when."""

    layer: int
    place: int
    numbytes: int
    begin_s: float
    end_s: float


def audit(step: Iteration, profile: tuple[Gradient, ...], wire: Wire, piece_bytes: int) -> Line:
    """Five checks of one step.

    Returns:
      `overlap`: bytes of lower priority in flight when a burst begins, at most, in pieces.
      `idle`: the share of time from the first piece to the last in which the link is free.
      `held`: the share in which it is free although the next piece would have left before the next burst.
      `by_layer`: after the last gradient of the pass all goes by layer.
      `once`: every byte crosses once.

    Cost: time that grows with the number of pieces, and with its square where the link is often free.
    Source: the invariants of Prophet (ICPP 2021), sections 4 and 5.
    """
    sizes = {
        (layer, place): piece.numbytes
        for layer, gradient in enumerate(profile)
        for place, piece in enumerate(pieces(layer, gradient.numbytes, most_bytes=piece_bytes))
    }
    sent = [
        Sent(*one.key, sizes[one.key], one.begin_s, one.end_s)
        for one in step.crossings
        if isinstance(one.key, Piece)
    ]
    starts_s = _starts(profile)
    late = [one[:2] for one in sent if one.begin_s > profile[0].ready_s + SLACK_S]
    held_s = sum(_held(sent, profile, starts_s, wire))
    return {
        "overlap": round(max(_overlap(sent, start_s) for start_s in starts_s) / piece_bytes, 3),
        "idle": idle(step),
        "held": round(held_s / (sent[-1].end_s - sent[0].begin_s), 4),
        "by_layer": late == sorted(late),
        "once": sorted(one[:2] for one in sent) == sorted(sizes),
    }


def idle(step: Iteration) -> float:
    """The share of time from the first piece to the last in which the link is free."""
    gaps_s = (later.begin_s - one.end_s for one, later in pairwise(step.crossings))
    return round(sum(gaps_s) / (step.crossings[-1].end_s - step.crossings[0].begin_s), 4)


def _starts(profile: tuple[Gradient, ...]) -> list[float]:
    """When each burst but the first begins."""
    lowest = [burst.lowest for burst in bursts([layer.ready_s for layer in profile])]
    return [profile[edge - 1].ready_s for edge in lowest[:-1]] or [0.0]


def _overlap(sent: list[Sent], start_s: float) -> int:
    """Bytes of what has begun and has not yet left; all that has begun is of an earlier burst."""
    return sum(
        one.numbytes for one in sent if one.begin_s < start_s - SLACK_S and one.end_s > start_s + SLACK_S
    )


def _held(
    sent: list[Sent], profile: tuple[Gradient, ...], starts_s: list[float], wire: Wire
) -> Iterator[float]:
    """Seconds in which the link is free, something waits, and the first of it would leave in time."""
    for number, (one, later) in enumerate(pairwise(sent), 1):
        if later.begin_s - one.end_s <= SLACK_S:
            continue
        waiting = [each for each in sent[number:] if profile[each.layer].ready_s <= one.end_s]
        next_s = min((start_s for start_s in starts_s if start_s > one.end_s), default=float("inf"))
        first = min(waiting, default=None)
        if first is not None and one.end_s + wire.seconds(first.numbytes) <= next_s:
            yield later.begin_s - one.end_s
