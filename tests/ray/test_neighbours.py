"""Objects of processes of one host: one memory that all map, whoever dies, and blocks where it cannot be."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ray.fleet import PATIENCE_S, Fleet
from tweed.ray.objects import Objects, Ref, Writer

#: No multiples of a page: 100 KB, 1 MB and 5 MB.
SIZES = (25_001, 250_001, 1_250_001)
NOBODY = 65534
PR_SET_DUMPABLE = 4
_held: list[npt.NDArray[Any]] = []
_unfinished: list[Writer] = []
#: What a process has read of each object, beside the value that all of it has.
_read: dict[Ref, tuple[float, npt.NDArray[Any]]] = {}


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(3)
    yield fleet
    fleet.close()


def _values(numel: int) -> npt.NDArray[np.float32]:
    return np.arange(numel, dtype=np.float32)


def _file(array: npt.NDArray[Any]) -> str | None:
    """The name of the file of objects in which an array lies."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(place, 16) for place in line.split()[0].split("-"))
            if begin <= array.ctypes.data < end and "/memfd:tweed-object-" in line:
                return line.split("/memfd:")[1]
    return None


def _put(objects: Objects, ref: Ref, numel: int) -> None:
    objects.put(_values(numel), ref)


def _some(objects: Objects, ref: Ref, numel: int) -> None:
    """Writes three quarters, and something else beyond the mark."""
    writer = objects.create((numel,), np.float32, ref)
    writer.array[:] = -1
    writer.array[: numel * 3 // 4] = _values(numel * 3 // 4)
    writer.advance(numel * 3 // 4)
    _unfinished.append(writer)


def _get(objects: Objects, ref: Ref, numel: int) -> str | None:
    """Gets an object, and keeps it. Returns the file."""
    array = objects.get(ref, timeout=PATIENCE_S).result()
    np.testing.assert_array_equal(array, _values(numel))
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    _held.append(array)
    return _file(array)


def _has_begun(objects: Objects, ref: Ref, numel: int) -> bool:
    """Waits for the first block, looks at it, and keeps it. Returns whether it is mapped."""
    begin, block = next(objects.blocks(ref, timeout=PATIENCE_S))
    assert begin == 0 and len(block) <= numel * 3 // 4
    np.testing.assert_array_equal(block, _values(len(block)))
    _held.append(block)
    return _file(block) is not None


def _still_holds(objects: Objects) -> bool:
    return all((array == _values(len(array))).all() for array in _held)


def _spoil(objects: Objects, ref: Ref) -> None:
    """Writes to what it has read, by force."""
    ctypes.memset(_read[ref][1].ctypes.data, 0xFF, _read[ref][1].nbytes)


def _shut(objects: Objects) -> None:
    """Other users' processes do not get at this one's files, and this one does not get at root's."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.geteuid() == 0:
        os.setuid(NOBODY)


def _fill(objects: Objects, ref: Ref, numel: int, value: float) -> None:
    objects.put(np.full(numel, value, np.float32), ref)


def _check(objects: Objects, ref: Ref, value: float) -> str | None:
    """Gets an object, and keeps it. Returns the file."""
    _read[ref] = value, objects.get(ref, timeout=PATIENCE_S).result()
    assert (_read[ref][1] == value).all()
    return _file(_read[ref][1])


def _changed(objects: Objects) -> list[Ref]:
    """The objects that it keeps, and that are not what they were."""
    return [ref for ref, (value, array) in _read.items() if not (array == value).all()]


def _let_go(objects: Objects, ref: Ref) -> None:
    _read.pop(ref, None)


def _end(objects: Objects, ref: Ref) -> None:
    """Deletes an object that it may have."""
    _let_go(objects, ref)
    objects.delete(ref)


def _drain(objects: Objects) -> None:
    """Waits until no object is here."""
    while objects.used:
        pass


def _empty(fleet: Fleet, ref: Ref) -> None:
    """The only object is nowhere any more."""
    for rank in range(3):
        fleet.on(rank, _end, ref)
    for rank in range(3):
        fleet.on(rank, _drain)


@pytest.mark.parametrize("numel", SIZES)
def test_all_map_what_one_has_put_and_it_stays_when_that_one_is_killed(fleet: Fleet, numel: int) -> None:
    ref = Ref.new()
    fleet.on(0, _put, ref, numel)
    file = fleet.on(0, _get, ref, numel)
    assert file is not None and fleet.on(1, _get, ref, numel) == file
    fleet.kill(0)
    assert fleet.on(1, _still_holds)
    assert fleet.on(2, _get, ref, numel) == file  # from the one that has mapped it
    fleet.kill(1)
    assert fleet.on(2, _still_holds)


@pytest.mark.parametrize("numel", [SIZES[-1], 4_000_001])  # of several blocks
def test_what_its_writer_left_unfinished_is_finished_by_another(fleet: Fleet, numel: int) -> None:
    ref = Ref.new()
    fleet.on(0, _some, ref, numel)
    assert fleet.on(1, _has_begun, ref, numel)
    fleet.kill(0)
    fleet.start(1, _get, ref, numel)
    fleet.on(2, _put, ref, numel)
    fleet.end(1)
    assert fleet.on(1, _still_holds)


def test_what_a_reader_writes_by_force_stays_its_own_and_is_not_in_the_next_object(fleet: Fleet) -> None:
    ref, numel = Ref.new(), SIZES[1]
    fleet.on(0, _fill, ref, numel, 4)
    for rank in range(3):
        fleet.on(rank, _check, ref, 4)
    fleet.on(1, _spoil, ref)
    assert [fleet.on(rank, _changed) for rank in range(3)] == [[], [ref], []]
    _empty(fleet, ref)
    ref = Ref.new()
    fleet.on(0, _fill, ref, numel, 5)
    assert len({fleet.on(rank, _check, ref, 5) for rank in range(3)}) == 1


def test_a_file_that_nobody_reads_any_more_has_the_next_object(fleet: Fleet) -> None:
    files = []
    for value, numel in enumerate([SIZES[1], SIZES[1] - 99, SIZES[1]]):
        ref = Ref.new()
        fleet.on(0, _fill, ref, numel, value)
        files.append({fleet.on(rank, _check, ref, value) for rank in range(3)})
        _empty(fleet, ref)
    assert len(files[0]) == 1 and files == [files[0]] * 3


def test_a_file_that_is_still_read_has_no_other_object(fleet: Fleet) -> None:
    ref, other, numel = Ref.new(), Ref.new(), SIZES[1]
    fleet.on(0, _fill, ref, numel, 1)
    files = [fleet.on(1, _check, ref, 1)]
    fleet.on(0, _end, ref)
    fleet.on(0, _drain)
    fleet.on(0, _fill, other, numel, 2)
    files += [fleet.on(rank, _check, other, 2) for rank in range(3)]
    assert files[0] != files[1] and fleet.on(1, _changed) == []


@pytest.mark.parametrize("seed", range(3))
def test_nobody_sees_another_object_whoever_holds_what(fleet: Fleet, seed: int) -> None:
    rng, live = random.Random(seed), list[tuple[Ref, int]]()
    for value in range(60):
        ref, maker = Ref.new(), rng.randrange(3)
        fleet.on(maker, _fill, ref, rng.choice(SIZES[:2]) - rng.randrange(100), value)
        live.append((ref, value))
        for rank in range(3):
            fleet.on(rank, _check, *rng.choice(live))
            fleet.on(rank, _let_go, rng.choice(live)[0])
        while len(live) > rng.randrange(2, 6):
            fleet.on(rng.randrange(3), _end, live.pop(rng.randrange(len(live)))[0])
        assert [fleet.on(rank, _changed) for rank in range(3)] == [[], [], []]


def test_who_may_not_open_the_file_gets_blocks(fleet: Fleet) -> None:
    ref, back, numel = Ref.new(), Ref.new(), SIZES[1]
    fleet.on(1, _shut)
    fleet.on(0, _put, ref, numel)
    fleet.on(1, _put, back, numel)
    file = fleet.on(0, _get, ref, numel)
    there = fleet.on(1, _get, ref, numel)
    assert there != file
    assert fleet.on(2, _get, ref, numel) in (file, there)


def test_who_wants_no_memory_shared_gets_blocks() -> None:
    with Objects() as one, Objects(wire_only=True) as other:
        other.meet([one.descriptor])
        array = other.get(one.put(_values(SIZES[0]))).result(PATIENCE_S)
        np.testing.assert_array_equal(array, _values(SIZES[0]))
        assert _file(array) is None
