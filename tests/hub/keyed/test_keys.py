"""How many keys a hub knows of, where there is no list of members."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tweed.hub.keyed import hub_links
from tweed.hub.keyed.hub_links import KeyedLinks
from tweed.links import hello


class Sockets:
    """In the place of `_core.HubLinks`: notes what was said over each link."""

    def __init__(self) -> None:
        self.came: list[tuple[int, Any]] = []
        self.said: dict[int, Any] = {}

    def next(self, _: float) -> list[tuple[int, Any]]:
        """What has come."""
        came, self.came = self.came, []
        return came

    def send(self, link: int, head: bytes, body: bytes | None = None, more: bool = False) -> None:
        """Of the hub."""
        self.said[link] = json.loads(head)

    def allow(self, link: int, numbytes: int) -> None:
        """Nothing."""


def test_a_hub_keeps_so_many_keys_and_those_that_it_knows_may_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_links, "_MOST_KEYS", 2)
    guard = SimpleNamespace(may_commit=True)
    replication: Any = SimpleNamespace(
        guard=guard, link=None, rest=lambda: None, joined=lambda member: None, left=lambda member: None
    )
    sockets: Any = Sockets()
    links = KeyedLinks(sockets, ["terms"], None, 1, replication)
    ask = bytearray(hello.packed({"terms": hello.digest(["terms"])}))
    for link, key in enumerate((1, 2, 3, 1)):
        sockets.came = [(link, bytes([key] * 32)), (link, ask), (link, "it hung up")]
        links.next(0.0)
    assert [sockets.said[link].get("worker") for link in range(4)] == [0, 1, None, 0]
    assert "keeps no more" in sockets.said[2]["refused"] and len(links.numbers) == 2
