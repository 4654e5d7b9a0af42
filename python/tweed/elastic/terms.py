"""What all members must hold alike, a line each, in a form that a joiner can say. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

#: So many lines are said as they are, up to so many characters of each; of the others there is a digest.
_MOST_LINES, _MOST_CHARACTERS = 128, 400


def shortened(lines: Sequence[str]) -> list[str]:
    """What tells these lines from others, and is short enough for a message: a large model has thousands.

    Example:
      >>> shortened(["check_every 5"])
      ['check_every 5']
      >>> shortened(["check_every 5"] * 1000)[-1]
      '872 more settings and parameters, digest 68f3bf0bdfd3'
    """
    first = [line[:_MOST_CHARACTERS] for line in lines[:_MOST_LINES]]
    if first == list(lines):
        return first
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=6).hexdigest()
    return [*first, f"{len(lines) - len(first)} more settings and parameters, digest {digest}"]


def difference(theirs: Sequence[str], mine: Sequence[str]) -> str:
    """Why a process with `mine` cannot be among members with `theirs`; empty if it can.

    Example:
      >>> difference(["check_every 5"], ["check_every 5"])
      ''
    """
    for one, other in zip_longest(theirs, mine, fillvalue="nothing"):
        if one != other:
            return (
                f"members do not hold the same model and settings: the others have {one}, and this process "
                f"has {other}"
            )
    return ""
