"""Objects of processes of one host: one memory that all map, whoever dies, and blocks where it cannot be."""

from __future__ import annotations

import ctypes
import os
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


def _spoil(objects: Objects) -> None:
    """Writes to what it holds, by force."""
    ctypes.memset(_held[-1].ctypes.data, 0xFF, _held[-1].nbytes)


def _shut(objects: Objects) -> None:
    """Other users' processes do not get at this one's files, and this one does not get at root's."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.geteuid() == 0:
        os.setuid(NOBODY)


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


def test_what_a_reader_writes_by_force_stays_its_own(fleet: Fleet) -> None:
    ref, numel = Ref.new(), SIZES[1]
    fleet.on(0, _put, ref, numel)
    for rank in range(3):
        fleet.on(rank, _get, ref, numel)
    fleet.on(1, _spoil)
    assert [fleet.on(rank, _still_holds) for rank in range(3)] == [True, False, True]


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
