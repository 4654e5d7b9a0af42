"""Collectives by tweed's objects, Ray's own, its tasks, and Gloo: an actor's part, and that of the driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Which sides do it. "late": the sources appear one after the other, spread over S/B.
COLLECTIVES = {
    "broadcast": ("tweed", "ray", "gloo"),
    "sum": ("tweed", "ray", "tree", "gloo"),
    "all_reduce": ("tweed", "ray", "gloo"),
    "gather": ("tweed", "ray"),
    "round trip": ("tweed", "ray"),
    "late sum": ("tweed", "gloo"),
    "late all_reduce": ("tweed", "gloo"),
}
_GROUP = "rounds"


class Worker:
    """An actor: holds an array, and does each side's part of a collective."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._array = np.zeros(0, np.float32)

    def resize(self, nbytes: int) -> None:
        """Its array has so many bytes from now on."""
        self._array = np.full(nbytes // 4, float(self._rank + 1), np.float32)

    def nothing(self) -> None:
        """What a call costs."""

    def put(self, side: str, ref: Any = None, after_s: float = 0.0) -> list[Any]:
        """The reference of a copy of its array, which is there after a while."""
        import ray

        import tweed.ray

        time.sleep(after_s)
        return [tweed.ray.put(self._array, ref) if side == "tweed" else ray.put(self._array)]

    def put_small(self, count: int) -> list[Any]:
        """As many small objects."""
        import tweed.ray

        return [tweed.ray.put(self._array[:1]) for _ in range(count)]

    def look_up(self, refs: list[Any]) -> list[float]:
        """Seconds of each get, of objects that it has not asked for before."""
        import tweed.ray

        seconds = []
        for ref in refs:
            began = time.monotonic()
            tweed.ray.get(ref, timeout=120).result()
            seconds.append(time.monotonic() - began)
        return seconds

    def gather(self, refs: list[Any], side: str) -> float:
        """The sum of one element each of the arrays that are got, all at once."""
        import ray

        import tweed.ray

        if side == "tweed":
            futures = [tweed.ray.get(ref, timeout=120) for ref in refs]
            return float(sum(future.result()[-1] for future in futures))
        return float(sum(array[-1] for array in ray.get(refs)))

    def send_back(self, refs: list[Any], side: str) -> list[Any]:
        """The reference of a copy of what is got."""
        import ray

        import tweed.ray

        (ref,) = refs
        if side == "tweed":
            return [tweed.ray.put(tweed.ray.get(ref, timeout=120).result())]
        return [ray.put(ray.get(ref).copy())]

    def get(self, refs: list[Any], side: str) -> float:
        """One element of the array that is got."""
        import ray

        import tweed.ray

        (ref,) = refs
        array = tweed.ray.get(ref, timeout=120).result() if side == "tweed" else ray.get(ref)
        return float(array[-1])

    def sum(self, refs: list[Any], side: str, target: Any = None) -> tuple[float, list[Any]]:
        """One element of the sum, and its reference."""
        import ray

        import tweed.ray

        if side == "tweed":
            done = tweed.ray.reduce(refs, target=target, timeout=120).result()
            return float(done.array[-1]), [done.ref]
        total = np.zeros_like(self._array)
        for ref in refs:
            total += ray.get(ref)
        return float(total[-1]), [ray.put(total)]

    def add(self, *others: Any) -> Any:
        """Its array and others', which Ray brings here."""
        return np.sum([self._array, *others], axis=0, dtype=np.float32)

    def meet(self) -> None:
        """Forms the group of Gloo."""
        from ray.util import collective

        backend: Any = "gloo"  # Ray's annotation is that of a class of names
        collective.init_collective_group(self._size, self._rank, backend, _GROUP)

    def collect(self, name: str, after_s: float = 0.0) -> float:
        """One element of what a collective of Gloo leaves here, which this actor enters after a while."""
        import torch
        from ray.util import collective

        time.sleep(after_s)
        tensor = torch.from_numpy(self._array.copy())
        if name == "broadcast":
            collective.broadcast(tensor, 0, _GROUP)
        elif name == "sum":
            collective.reduce(tensor, 0, _GROUP)
        else:
            collective.allreduce(tensor, _GROUP)
        return float(tensor[-1])


def _by_objects(actors: Sequence[Any], side: str, collective: str, late_s: float) -> tuple[float, set[float]]:
    """With tweed's objects, or Ray's. Returns seconds, and what is left of elements."""
    import ray

    first, *others = actors
    if collective in ("broadcast", "round trip"):
        begin = time.monotonic()
        made = refs = ray.get(first.put.remote(side))
        if collective == "round trip":
            back = ray.get(others[0].send_back.remote(refs, side))
            made, refs, others = [*refs, *back], back, [first]
        got = ray.get([actor.get.remote(refs, side) for actor in others])
        seconds = time.monotonic() - begin
        delete(made, side)
        return seconds, set(got)
    if collective == "gather":
        sources = [ref for refs in ray.get([actor.put.remote(side) for actor in others]) for ref in refs]
        begin = time.monotonic()
        total = ray.get(first.gather.remote(sources, side))
        seconds = time.monotonic() - begin
        delete(sources, side)
        return seconds, {total}
    return _sum_by_objects(actors, side, collective, late_s)


def _sum_by_objects(
    actors: Sequence[Any], side: str, collective: str, late_s: float
) -> tuple[float, set[float]]:
    import ray

    import tweed.ray

    target, begin = tweed.ray.Ref.new(), time.monotonic()
    if late_s:
        sources = [tweed.ray.Ref.new() for _ in actors]
        pauses = _spread(late_s, len(actors))
        for actor, ref, after_s in zip(actors, sources, pauses, strict=True):
            actor.put.remote(side, ref, after_s)
    else:
        sources = [ref for refs in ray.get([actor.put.remote(side) for actor in actors]) for ref in refs]
        begin = time.monotonic()
    summing = actors[0].sum.remote(sources, side, target)
    got = []
    if collective == "all_reduce":
        refs = [target] if side == "tweed" else ray.get(summing)[1]
        got = ray.get([actor.get.remote(refs, side) for actor in actors[1:]])
    value, made = ray.get(summing)
    seconds = time.monotonic() - begin
    delete([*sources, *made], side)
    return seconds, {value, *got}


def _spread(late_s: float, count: int) -> list[float]:
    """After what time each of so many is there; the destination is first."""
    return [late_s * place / (count - 1) for place in range(count)]


def delete(refs: Sequence[Any], side: str) -> None:
    """Nobody needs these objects any more: Ray finds that out by itself."""
    import tweed.ray

    for ref in refs if side == "tweed" else ():
        tweed.ray.delete(ref)


def _by_tree(actors: Sequence[Any]) -> tuple[float, set[float]]:
    """Each actor adds two others' sums to its own array: those of the places 2i + 1 and 2i + 2 of a heap."""
    import ray

    begin = time.monotonic()
    sums: dict[int, Any] = {}
    for place in reversed(range(len(actors))):
        below = [sums.pop(child) for child in (2 * place + 1, 2 * place + 2) if child in sums]
        sums[place] = actors[place].add.remote(*below)
    total = ray.get(actors[0].get.remote([sums[0]], "ray"))  # the driver is beside it, and does not count
    return time.monotonic() - begin, {total}


def _by_gloo(actors: Sequence[Any], collective: str, late_s: float) -> tuple[float, set[float]]:
    import ray

    begin = time.monotonic()
    pauses = _spread(late_s, len(actors))
    calls = [actor.collect.remote(collective, after) for actor, after in zip(actors, pauses, strict=True)]
    got = ray.get(calls)
    return time.monotonic() - begin, {got[0]} if collective == "sum" else set(got)


def round_of(actors: Sequence[Any], side: str, name: str, s_b: float) -> tuple[float, set[float]]:
    """One collective by one side. Returns seconds, and what is left of elements."""
    collective = name.removeprefix("late ")
    late_s = s_b if collective != name else 0.0
    if side == "tree":
        return _by_tree(actors)
    if side == "gloo":
        return _by_gloo(actors, collective, late_s)
    return _by_objects(actors, side, collective, late_s)


def right(collective: str, nodes: int) -> float:
    """What is left of elements: each rank holds its number, from 1 on."""
    every = nodes * (nodes + 1) / 2
    return {"broadcast": 1.0, "round trip": 1.0, "gather": every - 1}.get(collective, every)
