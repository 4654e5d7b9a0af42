"""Files that are there whole or not at all, and the folder in which tweed caches some."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    """Folder of the cache: TWEED_CACHE, or `tweed` in XDG_CACHE_HOME or in ~/.cache. It need not exist."""
    if own := os.environ.get("TWEED_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tweed"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file so that whoever looks sees the old content or the new one, even after a crash.

    Args:
      path: in a folder that exists. A link to a file leads to it; a device or a pipe is written to as it is.
      content: text is encoded as UTF-8.

    Raises: OSError; it names `path`.
    """
    data, place = content.encode() if isinstance(content, str) else content, path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        _sync(place.parent)
    except OSError as error:
        if error.filename is not None:
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Makes the names in `folder` survive a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
