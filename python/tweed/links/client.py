"""How a process calls a hub: it shows who it is, asks, and is answered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tweed import _core
from tweed.errors import PeerLost
from tweed.links import hello
from tweed.links.address import Credentials, HubAddress

_ANSWER_S = 30.0
#: A link's number, and who has joined, a message, or why it has ended.
Event = tuple[int, bytes | bytearray | str]


def opened(credentials: Credentials, most_bytes: int = 4096) -> _core.HubLinks:
    """Links of a process that shows these; no message of a new one may be longer than `most_bytes`."""
    return _core.HubLinks(
        secret=credentials.secret,
        secret_file=credentials.secret_file,
        testbed=os.environ.get("TWEED_TESTBED"),
        key_file=credentials.key_file,
        most_bytes=most_bytes,
    )


def job(address: HubAddress, credentials: Credentials) -> dict[str, Any] | None:
    """What the hub says that its members are to do; None: it does not say. Raises as `MemberLink`."""
    links = opened(credentials)
    try:
        answer, _ = ask(links, links.call(address.place, address.key), {"ask": "job"})
    finally:
        links.close()
    said = answer.get("job")
    return said if isinstance(said, dict) else None


def ask(
    links: _core.HubLinks,
    link: int,
    question: dict[str, Any],
    other: Callable[[Event], None] = lambda event: None,
) -> tuple[dict[str, Any], Sequence[Event]]:
    """The hub's answer over a link that is new, and what came behind it. Raises PeerLost if none comes.

    Args:
      other: called with what happens on other links meanwhile.
    """
    links.allow(link, hello.MOST_BYTES)
    links.send(link, hello.packed(question))
    until = time.monotonic() + _ANSWER_S
    while time.monotonic() < until:
        events = links.next(1.0)
        for place, (which, what) in enumerate(events):
            if which == link and isinstance(what, str):
                raise PeerLost(f"the link to the hub has ended: {what}")
            if which == link and isinstance(what, bytearray):
                return hello.read(what), events[place + 1 :]
            if which != link:
                other((which, what))
    raise PeerLost(f"the hub has let this member in, and does not answer within {_ANSWER_S:g} s")
