"""Files of data sets in the cache: there whole and undamaged, or not there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tweed.errors import DataError
from tweed.files import write_atomic


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
