"""Files that are there whole or not at all, and the folder in which tweed caches some."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from tweed.errors import DataError


def cache() -> Path:
    """Folder of the cache: TWEED_CACHE, or `tweed` in XDG_CACHE_HOME or in ~/.cache. It need not exist.

    Where that cannot be written, as with the home of a user who has none: one of this user in the folder for
    temporary files.
    """
    if own := os.environ.get("TWEED_CACHE"):
        return Path(own)
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tweed"
    return usual if _can_be_written(usual) else _private()


def _can_be_written(folder: Path) -> bool:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return os.access(there, os.W_OK | os.X_OK)


def _private() -> Path:
    """Code is loaded from there, so it must be nobody else's.

    Raises: DataError if somebody else has made it, or may write to it.
    """
    folder = Path(tempfile.gettempdir()) / f"tweed-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise DataError(
            f"{folder} is not this user's alone, so nothing is cached there: set TWEED_CACHE to one that is"
        )
    return folder


def write_atomic(path: Path, content: bytes | bytearray | str) -> None:
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
    # Drawn: processes in containers, which share the folder, may all have one number.
    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
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
