"""Whether the host's clock is kept in step. tweed does not need that; reading logs of several hosts does."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.finding import Finding, Level

_UNSYNCHRONISED = 0x40  # STA_UNSYNC of linux/timex.h


class _Timex(ctypes.Structure):
    """The head of struct timex; the kernel fills in more than is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror_us", ctypes.c_long),
        ("esterror_us", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What the kernel says of its clock; `max_error_s` is its own bound."""

    synchronised: bool | None
    max_error_s: float = 0.0
    why: str = ""


def gather() -> Facts:
    """Asks the kernel; changes nothing."""
    asked = _Timex(modes=0)
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked)) < 0:
        return Facts(None, why=os.strerror(ctypes.get_errno()))
    return Facts(not asked.status & _UNSYNCHRONISED, asked.maxerror_us / 1e6)


def judge(facts: Facts) -> Iterator[Finding]:
    """A clock that runs free is a note."""
    if facts.synchronised is None:
        yield Finding(Level.OK, f"not looked at: {facts.why}")
    elif facts.synchronised:
        yield Finding(Level.OK, f"the clock is in step, to {facts.max_error_s * 1000:.0f} ms at worst")
    else:
        what = "nothing that the kernel knows of keeps its clock in step: logs of several hosts may not fit"
        yield Finding(Level.NOTE, what, "sudo timedatectl set-ntp true; or sudo apt install chrony")
