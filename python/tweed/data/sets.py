"""The table of data sets, and how one is found: in the cache, or at the first source that has it whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from tweed.data import digits, fashion_mnist, mnist, shakespeare
from tweed.data.arrays import Arrays
from tweed.data.sources import FAILURES, Source, reason
from tweed.errors import DataError, UsageError
from tweed.files import cache, write_atomic

#: A set is a module with `ABOUT`, `FILES` (name to known checksums), `SOURCES`, `ADVICE` and `arrays(files)`.
SETS: dict[str, ModuleType] = {
    "fashion-mnist": fashion_mnist,
    "digits": digits,
    "shakespeare": shakespeare,
    "mnist": mnist,
}


def get(name: str, log: Callable[[str], None] = lambda line: None) -> Path:
    """Makes sure that a set is in the cache, whole and undamaged, and returns its folder there.

    Args:
      name: a key of `SETS`.
      log: called with one line for each place that is looked in.

    Raises:
      UsageError: no such set.
      DataError: no source has it. Says where was looked, why that failed, and what to do without a network.

    Cost: a checksum of the cached files, some 0.1 s; 31 MB are fetched for Fashion-MNIST the first time.

    Example:
      >>> get("digits").name
      'digits'
    """
    entry = _entry(name)
    folder = cache() / "data" / name
    wrong = damage(folder, entry.FILES)
    if not wrong:
        return folder
    tries = [f"the cache {folder}: " + "; ".join(f"{file} is {what}" for file, what in wrong.items())]
    log(f"{name}: looked in {tries[0]}")
    for source in entry.SOURCES:
        outcome = _try(entry, source, folder)
        log(f"{name}: {'found in' if outcome is None else 'looked in'} {source.where}" + (outcome or ""))
        if outcome is None:
            return folder
        tries.append(source.where + outcome)
    looked = "".join(f"\n  - {line}" for line in tries)
    raise DataError(
        f"no source has the data set {name!r}. Looked in{looked}\n{entry.ADVICE.format(folder=folder)}"
    )


def _try(entry: ModuleType, source: Source, folder: Path) -> str | None:
    """Fetches from `source` into the cache. Returns None, or why there is nothing good there."""
    try:
        contents = source.fetch()
    except FAILURES as error:
        return f": {reason(error)}"
    bad = [file for file, known in entry.FILES.items() if checksum(contents.get(file, b"")) not in known]
    if bad:
        return f": {', '.join(bad)} came with a checksum that is not known for this set"
    keep(folder, contents)
    return None


def load(name: str) -> Arrays:
    """The arrays of a set, fetched first if need be. Raises and costs as `get` does.

    Example:
      >>> load("digits").train.x.shape
      (1438, 8, 8)
    """
    folder = get(name)
    entry = _entry(name)
    arrays: Arrays = entry.arrays({file: read(folder / file) for file in entry.FILES})
    return arrays


def _entry(name: str) -> ModuleType:
    if name not in SETS:
        raise UsageError(f"there is no data set {name!r}; there are {', '.join(SETS)}")
    return SETS[name]


def checksum(content: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal digits. Cost: about 1 ms per MB."""
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> NDArray[np.uint8]:
    """Maps a file into memory, read-only, so that the ranks of a host share its pages. `[bytes]`."""
    return np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)


def damage(folder: Path, files: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Says what is wrong with each file of `folder` that has none of its known checksums in `files`."""
    wrong = {}
    for name, known in files.items():
        path = folder / name
        if not path.exists():
            wrong[name] = "not there"
        elif checksum(read(path).data) not in known:
            wrong[name] = "damaged: its checksum is not the one known for this set"
    return wrong


def keep(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes files so that each is there whole or not at all.

    Raises: DataError if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomic(folder / name, content)
    except OSError as error:
        advice = "set TWEED_CACHE to a folder that can be written to"
        raise DataError(f"cannot write to the cache {folder}: {error}; {advice}") from error
