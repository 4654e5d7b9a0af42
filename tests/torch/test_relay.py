"""Ranks that only dial out, at both ends: behind NAT in a testbed, with all that torch offers."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tweed.collective import Plan
from tweed.errors import PeerLost
from tweed.testbed import Ended, Network, Ranks, Said, opened, run_ranks, say
from tweed.torch import plan_json
from tweed.torch.rendezvous import unreached

SECRET = "open sesame, open sesame"
#: Two of four cannot be called.
NAT = Network(rate_bits=1e9, nat=(2, 3))


def card(tcp: str | None, host: int, *, wire_only: bool = False) -> bytes:
    return json.dumps({"tcp": tcp, "boot": "b", "network": host, "wire_only": wire_only}).encode()


def test_pairs_that_need_a_third_one() -> None:
    cards = [card("a", 0), card(None, 1), card(None, 2), card(None, 2)]
    assert unreached(cards) == [(1, 2), (1, 3)]
    assert unreached(cards, [(3, 0)]) == [(0, 3), (1, 2), (1, 3)]
    assert unreached([card(None, 1), card(None, 1, wire_only=True)]) == [(0, 1)]
    assert unreached([card("a", 0), card("a", 0)], [(0, 1)]) == [], "they share memory"


def everything(rank: int, size: int) -> dict[str, Any]:
    """What each kind of call gives, and what the plan sums by."""
    summed = torch.arange(300_000, dtype=torch.float64) * (rank + 1)
    dist.all_reduce(summed)
    gathered = [torch.zeros(5) for _ in range(size)]
    dist.all_gather(gathered, torch.full((5,), float(rank)))
    roots = []
    for root in range(size):
        told = torch.full((3,), float(rank))
        dist.broadcast(told, src=root)
        roots.append(told[0].item())
    swapped = torch.zeros(size)
    dist.all_to_all_single(swapped, torch.arange(size, dtype=torch.float32) + 10 * rank)
    sent = torch.full((100_000,), float(rank))
    if rank == 2:
        dist.send(sent, 3)
    elif rank == 3:
        dist.recv(sent, 2)
    pair = dist.new_group([2, 3])
    if rank in (2, 3):
        alone = torch.ones(4)
        dist.all_reduce(alone, group=pair)
        sent[0] += alone[0]
    dist.barrier()
    return {
        "sum": summed[-1].item(),
        "gathered": [one[0].item() for one in gathered],
        "roots": roots,
        "swapped": swapped.tolist(),
        "sent": sent[:2].tolist(),
        "plan": plan_json(),
    }


@pytest.mark.usefixtures("namespaces")
def test_two_of_four_behind_nat_have_all_that_torch_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", SECRET)
    got = run_ranks(everything, 4, backend="tweed", network=NAT, timeout=120)
    for rank, found in enumerate(got):
        assert found["sum"] == 299_999 * 10
        assert found["gathered"] == [0, 1, 2, 3] == found["roots"]
        assert found["swapped"] == [10 * other + rank for other in range(4)]
    assert [found["sent"] for found in got[2:]] == [[4.0, 2.0], [4.0, 2.0]]
    left = Plan.from_json(got[0]["plan"]).topology
    assert all(found["plan"] == got[0]["plan"] for found in got)
    assert left is not None and not left.has_link(2, 3) and len(left.links) == 10


def summed(rank: int, size: int) -> list[float]:
    total = torch.full((300_000,), float(rank + 1))
    dist.all_reduce(total)
    return total.unique().tolist()


@pytest.mark.usefixtures("namespaces")
def test_packets_cross_nat_and_between_two_behind_it_a_stream_carries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their plan is pairwise, as sums may lose contributions alone, so the pair (2, 3) is used."""
    monkeypatch.setenv("TWEED_SECRET", SECRET)
    monkeypatch.setenv("TWEED_TRANSPORT", "ltp")
    assert run_ranks(summed, 4, backend="tweed", network=NAT, timeout=120) == [[10.0]] * 4


@pytest.mark.usefixtures("namespaces")
def test_a_relay_that_is_killed_is_named_and_not_who_is_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", SECRET)
    # The pair (1, 2) goes through rank 0: nobody else is called.
    with opened(Network(nat=(1, 2)), 3) as bed, Ranks(between, 3, backend="tweed", bed=bed) as ranks:
        texts: dict[int, str] = {}
        ready = 0
        while len(texts) < 2:
            events = ranks.poll(60)
            assert events, "nothing happens"
            for event in events:
                if isinstance(event, Said) and event.value == "ready":
                    ready += 1
                    if ready == 3:
                        ranks.kill(0, signal.SIGKILL)
                elif isinstance(event, Said):
                    texts[event.rank] = event.value
                else:
                    assert isinstance(event, Ended) or event.rank == 0, event
    assert "who handed on what it sent" in texts[2], texts
    assert "rank 0 on" in texts[1], texts


def between(rank: int, size: int) -> None:
    """Rank 2 waits for rank 1, and rank 1 for rank 0, who is killed."""
    say("ready")
    try:
        dist.recv(torch.zeros(1), {2: 1, 1: 0, 0: 1}[rank])
    except PeerLost as error:
        say(str(error))
