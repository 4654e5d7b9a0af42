"""Broadcast, sum and all-reduce of arrays between actors on raylets, by tweed's objects and by what Ray has.

The launcher opens a testbed and a cluster; the driver runs in it (`python -m tweed.experiments.object_rounds
ADDRESS NODES NUMEL ROUNDS`) and prints a line per side and collective. Raylets that share this host, and its
network, it starts itself. Sides beside tweed's: Ray's own objects; a binary tree of Ray's tasks, which sums;
and `ray.util.collective` on Gloo, whose members are known before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from tweed.errors import NoTestbed
from tweed.experiments.notes import Notes
from tweed.ray.installed import require_ray
from tweed.testbed import Network, opened
from tweed.testbed.raylets import STORE_BYTES, raylets

#: Such that the processors of the machine, which all raylets share, are no bottleneck.
RATE_MBIT = 50
COLLECTIVES = ("broadcast", "sum", "all_reduce")
SIDES = ("tweed", "ray", "tree", "gloo")
#: What a side does not do.
_NONE = {("broadcast", "tree"), ("all_reduce", "tree")}
_GROUP = "rounds"
#: In place of a cluster's address: raylets of this host, where all objects are in its memory.
HERE = "here"


def numel_of(s_b: float) -> int:
    """Values whose bytes take so many seconds over one link."""
    return int(s_b * RATE_MBIT * 1e6 / 8 / 4)


def measure(nodes: int, numel: int, rounds: int) -> Iterator[Mapping[str, Any]]:
    """Runs all sides on a cluster of so many nodes, each behind a link of `RATE_MBIT`.

    Returns: a line per side and collective, with `seconds` per round, and how `busy` the processors were
      meanwhile, as a share of all.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.

    Cost: 10 s of a processor per node, and the rounds.
    """
    yield from in_cluster(nodes, "tweed.experiments.object_rounds", [str(nodes), str(numel), str(rounds)])


def on_one_host(nodes: int, numel: int, rounds: int) -> Iterator[Mapping[str, Any]]:
    """All-reduces of so many values between raylets of this host; lines as `measure` has them.

    Raises: UsageError where Ray is missing.
    """
    require_ray()
    words = (HERE, str(nodes), str(numel), str(rounds))
    yield from _lines([sys.executable, "-m", "tweed.experiments.object_rounds", *words])


def by_size(notes: Notes, place: str, nodes: int, nbytes: int, rounds: int = 20) -> None:
    """Notes rounds of so many bytes, if there are none. `place`: "one host", or "raylets" behind links."""
    facts = {"kind": "by size", "place": place, "nodes": nodes, "bytes": nbytes}
    if notes.has(**facts):
        return
    notes.log(f"{place}: {nodes} raylets, {nbytes} bytes")
    runs = on_one_host if place == "one host" else measure
    try:
        for line in runs(nodes, nbytes // 4, rounds):
            notes.add({**facts, **line})
    except NoTestbed as error:
        notes.log(f"not measured live: {error}")


def in_cluster(nodes: int, module: str, words: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The lines that a module prints which is run on the first node of a cluster, after its address.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.
    """
    with opened(Network.parse(f"rate={RATE_MBIT}mbit"), nodes) as bed, raylets(bed) as cluster:
        yield from _lines(cluster.command(0, sys.executable, "-m", module, cluster.address, *words))


def _lines(program: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # Ray prints there too, of actors that have died
            yield json.loads(line)


class Worker:
    """An actor: holds an array, and does each side's part of a collective."""

    def __init__(self, rank: int, size: int, numel: int) -> None:
        self._rank, self._size = rank, size
        self._array = np.full(numel, float(rank + 1), np.float32)

    def put(self, side: str) -> list[Any]:
        """The reference of a copy of its array."""
        import ray

        import tweed.ray

        return [tweed.ray.put(self._array) if side == "tweed" else ray.put(self._array)]

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

    def collect(self, name: str) -> float:
        """One element of what a collective of Gloo leaves here."""
        import torch
        from ray.util import collective

        tensor = torch.from_numpy(self._array.copy())
        if name == "broadcast":
            collective.broadcast(tensor, 0, _GROUP)
        elif name == "sum":
            collective.reduce(tensor, 0, _GROUP)
        else:
            collective.allreduce(tensor, _GROUP)
        return float(tensor[-1])


def _by_objects(actors: Sequence[Any], side: str, collective: str) -> tuple[float, set[float]]:
    """With tweed's objects, or Ray's. Returns seconds, and what is left of elements."""
    import ray

    import tweed.ray

    if collective == "broadcast":
        begin = time.monotonic()
        refs = ray.get(actors[0].put.remote(side))
        got = ray.get([actor.get.remote(refs, side) for actor in actors[1:]])
        seconds = time.monotonic() - begin
        for ref in refs if side == "tweed" else ():
            tweed.ray.delete(ref)
        return seconds, set(got)
    sources = [ref for refs in ray.get([actor.put.remote(side) for actor in actors]) for ref in refs]
    target = tweed.ray.Ref.new()
    begin = time.monotonic()
    summing = actors[0].sum.remote(sources, side, target)
    got, refs = [], [target]
    if collective == "all_reduce":
        refs = refs if side == "tweed" else ray.get(summing)[1]
        got = ray.get([actor.get.remote(refs, side) for actor in actors[1:]])
    value, made = ray.get(summing)
    seconds = time.monotonic() - begin
    for ref in (*sources, *made) if side == "tweed" else ():
        tweed.ray.delete(ref)
    return seconds, {value, *got}


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


def _by_gloo(actors: Sequence[Any], collective: str) -> tuple[float, set[float]]:
    import ray

    begin = time.monotonic()
    got = ray.get([actor.collect.remote(collective) for actor in actors])
    return time.monotonic() - begin, {got[0]} if collective == "sum" else set(got)


def _round(actors: Sequence[Any], side: str, collective: str) -> tuple[float, set[float]]:
    if side == "tree":
        return _by_tree(actors)
    return _by_gloo(actors, collective) if side == "gloo" else _by_objects(actors, side, collective)


def drive(address: str, nodes: int, numel: int, rounds: int, out: Callable[[str], object]) -> None:
    """The driver: an actor per node, then all rounds, the sides in turn.

    Raises: ValueError if a side's result is wrong.
    """
    import ray

    cluster = _started(nodes) if address == HERE else None
    ray.init(address if cluster is None else cluster.address, log_to_driver=False)
    remote: Any = ray.remote(Worker)
    actors = [
        remote.options(num_cpus=1, scheduling_strategy="SPREAD").remote(rank, nodes, numel)
        for rank in range(nodes)
    ]
    ray.get([actor.meet.remote() for actor in actors])
    for collective in COLLECTIVES if cluster is None else COLLECTIVES[-1:]:
        sides = [side for side in SIDES if (collective, side) not in _NONE]
        right = {1.0} if collective == "broadcast" else {nodes * (nodes + 1) / 2}
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        busy: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds + 1):
            for side in sides:
                psutil.cpu_percent()
                took, found = _round(actors, side, collective)
                if found != right:
                    raise ValueError(f"{side}: a wrong {collective}, {found} where {right} is right")
                seconds[side].append(took)
                busy[side].append(psutil.cpu_percent() / 100)
        for side in sides:  # the first round opens links
            line = {"collective": collective, "side": side, "seconds": seconds[side][1:]}
            out(json.dumps(line | {"busy": max(busy[side][1:])}))
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()


def _started(nodes: int) -> Any:
    """Raylets of this host, as Ray's own tests start them."""
    from ray.cluster_utils import Cluster

    each: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(**each)
    return cluster


if __name__ == "__main__":
    head, *numbers = sys.argv[1:]
    many, size, times = map(int, numbers)
    drive(head, many, size, times, lambda text: print(text, flush=True))
