"""Objects of two actors under one raylet, beside Ray's own: one puts an array, the other gets and reads it.

The two sides take turns. Times are the driver's, with both calls of actors, and those of `put` and `get`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from bench.run import Row, quantile
from bench.units import grid, seconds, size, times

PART = "one raylet"
SIDES = ("tweed", "ray")
BYTES = (16_800_000, 1_000_000)
ROUNDS, WARM_UP = 20, 3


class ObjectActor:
    """An actor that puts and gets."""

    def __init__(self) -> None:
        self._arrays = {nbytes // 4: np.ones(nbytes // 4, np.float32) for nbytes in BYTES}

    def put(self, side: str, numel: int, first: int) -> tuple[list[Any], float]:
        """The reference of ones behind a first element, and the seconds of that alone."""
        import ray

        import tweed.ray

        array = self._arrays[numel]
        array[0] = first
        began = time.monotonic()
        ref = tweed.ray.put(array) if side == "tweed" else ray.put(array)
        return [ref], time.monotonic() - began

    def get(self, side: str, refs: list[Any]) -> tuple[float, float]:
        """The sum of all elements, and the seconds until it is known."""
        import ray

        import tweed.ray

        began = time.monotonic()
        array = tweed.ray.get(refs[0], timeout=60).result() if side == "tweed" else ray.get(refs[0])
        return float(array.sum()), time.monotonic() - began

    def delete(self, refs: list[Any]) -> None:
        """Takes an object of tweed's away."""
        import tweed.ray

        tweed.ray.delete(refs[0])


def rows() -> Iterator[Row]:
    """A row for each size and side.

    Raises: ValueError if an array that was got is not the one that was put.
    """
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        pair = [ray.remote(num_cpus=0)(ObjectActor).remote() for _ in SIDES]
        for nbytes in BYTES:
            found: dict[str, list[tuple[float, float, float]]] = {side: [] for side in SIDES}
            for turn in range(WARM_UP + ROUNDS):
                for side in SIDES:
                    found[side].append(_round(pair, side, nbytes // 4, turn))
            for side in SIDES:
                yield _row(nbytes, side, found[side][WARM_UP:])
    finally:
        ray.shutdown()


def _round(pair: Sequence[Any], side: str, numel: int, first: int) -> tuple[float, float, float]:
    """Seconds of a put and a get with the calls of their actors, and of each alone."""
    import ray

    began = time.monotonic()
    refs, put_s = ray.get(pair[0].put.remote(side, numel, first))
    total, get_s = ray.get(pair[1].get.remote(side, refs))
    took_s = time.monotonic() - began
    if total != (right := numel - 1 + first):
        raise ValueError(f"{side}: {total} was got where {right} is right")
    if side == "tweed":  # Ray finds out by itself
        ray.get(pair[1].delete.remote(refs))
    return took_s, put_s, get_s


def _row(nbytes: int, side: str, spans: Sequence[tuple[float, float, float]]) -> Row:
    all_s, put_s, get_s = (sorted(column) for column in zip(*spans, strict=True))
    figures = {"median_s": median(all_s), "p99_s": quantile(all_s, 0.99), "calls": len(all_s)}
    alone = {"put_s": median(put_s), "get_s": median(get_s)}
    return {"part": PART, "bytes": nbytes, "side": side, **figures, **alone}


def table(rows: Sequence[Row]) -> str:
    """Both sides, and how many times as fast as Ray's objects tweed's are; bold where they are slower."""
    found = {(row["bytes"], row["side"]): row for row in rows if row["part"] == PART}
    body = []
    for (nbytes, side), row in found.items():
        other = found.get((nbytes, "ray"))
        ratio = times(row["median_s"], other["median_s"]) if other and side == "tweed" else ""
        figures = (seconds(row[key]) for key in ("median_s", "p99_s", "put_s", "get_s"))
        body.append((side, size(nbytes), *figures, ratio, str(row["calls"])))
    head = ("objects of", "size", "put and get: median", "p99", "put", "get", "speed, times Ray's", "rounds")
    return f"## Objects of one raylet\n\n{grid(head, body)}" if body else ""
