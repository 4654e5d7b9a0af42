"""The secret that lets hosts in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import loopback

_SHORT = 16
_MAKE = (
    "(umask 077; head -c 32 /dev/urandom | base64 > ~/.tweed-secret); "
    "export TWEED_SECRET_FILE=~/.tweed-secret"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """`length` of TWEED_SECRET, None if it is not set; the secret file with its mode, or why it is no use."""

    host: str | None
    testbed: bool = False
    length: int | None = None
    file: str | None = None
    mode: int = 0o600
    error: str | None = None


def gather() -> Facts:
    """Looks at variables and the file's mode; the secret itself goes nowhere."""
    host, secret = os.environ.get("TWEED_HOST") or None, os.environ.get("TWEED_SECRET")
    file = os.environ.get("TWEED_SECRET_FILE") or None
    facts = Facts(host, bool(os.environ.get("TWEED_TESTBED")), len(secret) if secret else None, file)
    return facts if file is None else _with_file(facts, Path(file))


def _with_file(facts: Facts, path: Path) -> Facts:
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_bytes().strip()
    except OSError as error:
        return replace(facts, error=str(error))
    return replace(facts, mode=mode, error=None if text else f"{path} is empty")


def judge(facts: Facts) -> Iterator[Finding]:
    """Several hosts need one; it must be long and nobody else's."""
    if facts.error is not None:
        yield Finding(Level.ERROR, f"TWEED_SECRET_FILE cannot be used: {facts.error}", _MAKE)
    elif facts.file is not None and facts.mode & 0o077:
        what = f"{facts.file} can be read by other users (mode {facts.mode:04o})"
        yield Finding(Level.WARNING, what, f"chmod 600 {facts.file}")
    if facts.length is not None and facts.length < _SHORT:
        what = f"TWEED_SECRET has {facts.length} characters: short enough to be guessed"
        yield Finding(Level.WARNING, what, f"{_MAKE}  # the same file on every host")
    if facts.length is not None or facts.file is not None:
        if facts.error is None:
            yield Finding(Level.OK, "a secret is set; it must be the same on every host")
    elif facts.testbed or facts.host is None or loopback(facts.host):
        yield Finding(
            Level.OK, "no secret is set, and none is needed on one host; several hosts need one", _MAKE
        )
    else:
        what = f"TWEED_HOST={facts.host} opens tweed to other hosts: without a secret it refuses to start"
        yield Finding(Level.ERROR, what, f"{_MAKE}  # and copy the file to every host")
