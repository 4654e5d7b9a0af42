"""Whether there is a Ray that tweed can use."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from tweed.distribution import install_extra
from tweed.errors import UsageError

#: Earlier ones take no collective backends from others.
OLDEST = (2, 55)


def version() -> str | None:
    """Ray's version; None if it is not installed."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def require_ray() -> None:
    """Returns if Ray and Ray Train are installed, and recent enough.

    Raises: UsageError otherwise; says what to install.
    """
    found = version()
    if found is None:
        raise UsageError(f"this needs Ray, which is not installed: {install_extra('ray')}")
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"Ray {found} is too old, {oldest} or later is needed: {install_extra('ray')}")
    # What Ray Train needs beside Ray: `pip install ray` leaves it out.
    if missing := [name for name in ("pandas", "pyarrow") if find_spec(name) is None]:
        raise UsageError(f"Ray Train lacks {' and '.join(missing)}: {install_extra('ray')}")
