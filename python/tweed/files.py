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
      path: in a folder that exists.
      content: text is encoded as UTF-8.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Makes the names in `folder` survive a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
