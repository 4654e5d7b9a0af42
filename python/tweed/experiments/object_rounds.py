"""Broadcast, sum and all-reduce of arrays between actors on raylets, by tweed's objects and by Ray's own.

The launcher opens a testbed and a cluster; the driver runs in it (`python -m tweed.experiments.object_rounds
ADDRESS NODES NUMEL ROUNDS`) and prints a line per side and collective.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tweed.testbed import Network, opened
from tweed.testbed.raylets import raylets

RATE_MBIT = 200
COLLECTIVES = ("broadcast", "sum", "all_reduce")
SIDES = ("tweed", "ray")


def measure(nodes: int, s_b: float, rounds: int) -> Iterator[Mapping[str, Any]]:
    """Runs all sides on a cluster of so many nodes, each behind a link of 200 Mbit/s.

    Args:
      s_b: seconds that an array's bytes take over one link.

    Returns: a line per side and collective, with `seconds` per round.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.

    Cost: 5 s of a processor per node, and the rounds.
    """
    numel = int(s_b * RATE_MBIT * 1e6 / 8 / 4)
    yield from in_cluster(nodes, "tweed.experiments.object_rounds", [str(nodes), str(numel), str(rounds)])


def in_cluster(nodes: int, module: str, words: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The lines that a module prints which is run on the first node of a cluster, after its address.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.
    """
    with opened(Network.parse(f"rate={RATE_MBIT}mbit"), nodes) as bed, raylets(bed) as cluster:
        program = cluster.command(0, sys.executable, "-m", module, cluster.address, *words)
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        yield json.loads(line)


class Worker:
    """An actor: holds an array, and does each side's part of a collective."""

    def __init__(self, rank: int, numel: int) -> None:
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


def _round(actors: Sequence[Any], side: str, collective: str) -> tuple[float, bool]:
    """Seconds of one round, and whether everybody has what it must."""
    import ray

    import tweed.ray

    everyone = len(actors) * (len(actors) + 1) / 2
    if collective == "broadcast":
        begin = time.monotonic()
        refs = ray.get(actors[0].put.remote(side))
        got = ray.get([actor.get.remote(refs, side) for actor in actors[1:]])
        seconds = time.monotonic() - begin
        for ref in refs if side == "tweed" else ():
            tweed.ray.delete(ref)
        return seconds, set(got) == {1.0}
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
    return seconds, {value, *got} == {everyone}


def drive(address: str, nodes: int, numel: int, rounds: int, out: Callable[[str], object]) -> None:
    """The driver: an actor per node, then all rounds, the sides in turn."""
    import ray

    ray.init(address, log_to_driver=False)
    remote: Any = ray.remote(Worker)
    actors = [
        remote.options(num_cpus=1, scheduling_strategy="SPREAD").remote(rank, numel) for rank in range(nodes)
    ]
    for collective in COLLECTIVES:
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(rounds + 1):
            for side in SIDES:
                took, is_right = _round(actors, side, collective)
                if not is_right:
                    raise ValueError(f"{side}: a wrong {collective}")
                seconds[side].append(took)
        for side in SIDES:  # the first round opens links
            out(json.dumps({"collective": collective, "side": side, "seconds": seconds[side][1:]}))
    ray.shutdown()


if __name__ == "__main__":
    head, *numbers = sys.argv[1:]
    many, size, times = map(int, numbers)
    drive(head, many, size, times, lambda text: print(text, flush=True))
