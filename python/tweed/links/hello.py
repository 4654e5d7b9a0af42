"""What a member and its hub say first over a link: a question of the member as JSON, and the hub's answer.

{"ask": "job"}        ->     {"job": what members are to do, if the hub says so}
{"terms": digest}     ->     {"worker": n, "workers": m}       it is in, and messages follow
                             {"terms": [...]}                  the models differ: all lines of the hub's
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tweed.errors import DataError

#: Of an answer: lines of the terms of a large model.
MOST_BYTES = 16 * 2**20


def digest(terms: Sequence[str]) -> str:
    """A digest of all that both sides must agree on, a line each."""
    return hashlib.sha256("\n".join(terms).encode()).hexdigest()


def packed(said: dict[str, Any]) -> bytes:
    """A greeting as bytes, as it crosses."""
    return json.dumps(said).encode()


def read(data: bytes | bytearray) -> dict[str, Any]:
    """The inverse. Raises DataError for what is no such message."""
    try:
        said = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise DataError(f"what came is no greeting: {error}") from None
    if not isinstance(said, dict):  # what it is instead is a stranger's text, and not for the log
        raise DataError(f"what came is no greeting, but a {type(said).__name__}")
    return said


def difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """The first line in which they differ, for people."""
    for mine, other in zip_longest(ours, theirs, fillvalue="nothing"):
        if mine != other:
            return f"the hub has {other}; this member has {mine}"
    return "they are the same"
