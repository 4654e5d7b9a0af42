"""A raylet that is killed amid broadcasts, sums and all-reduces: what the others have, and newcomers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ray.driver import Driver

#: 16 MB; no block has more than half of that.
NUMEL = 4 << 20
SHARES = (0.1, 0.6)
MODES = ("whole", "ranges")
DIES = 2
# Processes of Ray take seconds to import what they need, and many more on a busy machine.
pytestmark = pytest.mark.timeout(600)
#: What the driver keeps between `begin` and `end`.
_kept: dict[str, Any] = {}


def values(factor: float) -> npt.NDArray[np.float32]:
    """An object of whole numbers, whose sums do not depend on their order."""
    return np.arange(NUMEL, dtype=np.float32) % 1024 * np.float32(factor)


def digest(array: Any) -> str:
    """Of all bytes."""
    return hashlib.blake2b(array, digest_size=8).hexdigest()


class Half:
    """An object of which so much is written, and later the rest."""

    def __init__(self, ref: Any, factor: float, share: float) -> None:
        import tweed.ray

        self.values = values(factor)
        self.writer = tweed.ray.create((NUMEL,), np.float32, ref)
        self.go_on(int(NUMEL * share))

    def go_on(self, mark: int = NUMEL) -> None:
        """The first `mark` elements are there."""
        self.writer.array[:mark] = self.values[:mark]
        self.writer.advance(mark)


class Node:
    """An actor that has a node of its own."""

    def __init__(self) -> None:
        self.halves: list[Half] = []  # a writer that is let go of unfinished deletes its object

    def put(self, ref: Any, factor: float, share: float = 1.0) -> None:
        self.halves.append(Half(ref, factor, share))

    def begins(self, ref: Any, share: float) -> None:
        """Begins to get an object, of which so much is there, and waits for a block if there is one."""
        import tweed.ray

        self.got = tweed.ray.get(ref, timeout=120)
        if share > max(SHARES) / 2:
            next(tweed.ray.blocks(ref, timeout=120))

    def digest(self, ref: Any) -> str:
        import tweed.ray

        return digest(tweed.ray.get(ref, timeout=60).result())


def node(host: str) -> Any:
    """A new one, there."""
    import ray

    made: Any = ray.remote(Node)
    return made.options(num_cpus=0.1, resources={f"node:{host}": 0.001}).remote()


def begin() -> None:
    """All collectives at all shares are under way, and each needs the node that dies.

    A broadcast with a receiver there; one with its origin there; sums of two of three sources, of which one
    is there and the third is not yet, and which others get while they form.
    """
    import ray

    import tweed.ray

    _, stays, dies = sorted(known["NodeManagerAddress"] for known in ray.nodes() if known["Alive"])
    dying, staying = node(dies), node(stays)
    ray.get(dying.put.remote(tweed.ray.Ref.new(), 0.0))  # the job's first process is there
    ray.get(staying.put.remote(tweed.ray.Ref.new(), 0.0))
    _kept.update(host=stays, staying=staying, broadcasts=[], sums=[])
    for share in SHARES:
        received, origin = tweed.ray.Ref.new(), tweed.ray.Ref.new()
        half = Half(received, 5.0, share)
        ray.get([reader.begins.remote(received, share) for reader in (dying, staying)])
        ray.get(dying.put.remote(origin, 7.0, share))
        ray.get(staying.begins.remote(origin, share))
        _kept["broadcasts"].append((half, received, origin))
        for mode in MODES:
            refs = [tweed.ray.Ref.new() for _ in range(3)]
            sums = tweed.ray.reduce(refs, 2, mode=mode, timeout=120)
            tweed.ray.put(values(1.0), refs[0])
            ray.get(dying.put.remote(refs[1], 2.0, share))
            assert set(sums.placed()) == set(refs[:2])
            ray.get(staying.begins.remote(sums.ref, share))
            _kept["sums"].append((sums, refs))


def end() -> dict[str, Any]:
    """That node is dead. Returns what the others have, and what a process has that comes now."""
    import ray

    import tweed.ray

    staying, broadcasts, sums = _kept["staying"], [], []
    for half, received, origin in _kept["broadcasts"]:
        half.go_on()
        tweed.ray.put(values(7.0), origin)
        broadcasts.append([ray.get(staying.digest.remote(ref)) for ref in (received, origin)])
    for reduction, refs in _kept["sums"]:
        ray.get(staying.put.remote(refs[2], 4.0))
        done = reduction.result()
        included = [(begin, end, sorted(refs.index(ref) for ref in of)) for begin, end, of in done.included]
        is_equal = ray.get(staying.digest.remote(reduction.ref)) == digest(done.array)
        sums.append((right_until(done.array, included), included, is_equal))
    newcomer = node(_kept["host"])
    late = ray.get(newcomer.digest.remote(_kept["broadcasts"][0][1]))
    for actor in (staying, newcomer):
        ray.kill(actor)
    _kept.clear()
    return {"broadcasts": broadcasts, "sums": sums, "newcomer": late}


def right_until(array: npt.NDArray[np.float32], included: list[tuple[int, int, list[int]]]) -> int:
    """Up to which element a sum is that of the sources that it names."""
    mark = 0
    for first, last, of in included:
        right = values(sum(2.0**index for index in of))[first:last]
        if first != mark or not np.array_equal(array[first:last], right):
            break
        mark = last
    return mark


@pytest.fixture(scope="module")
def found(driver: Driver) -> Iterator[dict[str, Any]]:
    """What the others had when a node was dead; it starts again after that."""
    driver(begin)
    driver.cluster.kill(DIES)
    yield dict(driver(end))
    driver.cluster.start(DIES)


def test_broadcasts_are_equal(found: dict[str, Any]) -> None:
    assert found["broadcasts"] == [[digest(values(5.0)), digest(values(7.0))]] * len(SHARES)


@pytest.mark.parametrize("place", range(len(SHARES) * len(MODES)))
def test_sums_are_of_the_ids_reported_and_others_have_the_same(found: dict[str, Any], place: int) -> None:
    right, included, is_equal = found["sums"][place]
    assert right == NUMEL and is_equal
    assert 1 not in included[-1][2]  # its end was not written when its node died
    if MODES[place % len(MODES)] == "whole":
        assert included == [(0, NUMEL, [0, 2])]


def test_who_comes_after_the_first_process_has_died_has_what_the_others_have(found: dict[str, Any]) -> None:
    assert found["newcomer"] == digest(values(5.0))
