"""Whether slow and lossy networks can be built here, for `--network`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.finding import Finding, Level
from tweed.errors import NoTestbed
from tweed.testbed import Network, opened

_TRIAL = Network(rate_bits=100e6, loss=0.001)


@dataclass(frozen=True, slots=True)
class Facts:
    """Why none can be built; None: one was."""

    error: str | None


def gather() -> Facts:
    """Builds a network for two ranks and takes it down."""
    try:
        with opened(_TRIAL, 2):
            return Facts(None)
    except NoTestbed as error:
        return Facts(str(error))


def judge(facts: Facts) -> Iterator[Finding]:
    """It is a tool for trying things out, so its lack is a note."""
    if facts.error is None:
        yield Finding(Level.OK, "networks can be built here: tweed train --network rate=100mbit,loss=0.1%")
    else:
        what = f"--network does not work here: {facts.error}"
        yield Finding(Level.NOTE, what, "as it says; training on real networks does not need it")
