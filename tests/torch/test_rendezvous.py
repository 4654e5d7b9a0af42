"""The exchange of cards for terms, with threads as ranks and a store in memory."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from tweed.errors import UsageError
from tweed.torch import Options
from tweed.torch.rendezvous import Place, Terms, _conflict, group_id, one_host, settle
from tweed.transport import Ltp


def card(rank: int, *, boot: str = "b", network: str = "n", wire_only: bool = False) -> bytes:
    return json.dumps({"uid": rank, "boot": boot, "network": network, "wire_only": wire_only}).encode()


def settle_all(size: int, store: dist.Store, options: Options | None = None) -> list[Terms]:
    """What each rank learns."""

    def rank(number: int) -> Terms:
        place = Place(store, "0", number, size, timedelta(seconds=10))
        return settle(card(number), place, options or Options())

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))


def test_all_ranks_get_the_same_terms() -> None:
    first, *others = settle_all(4, dist.HashStore())
    assert first.cards == [card(rank) for rank in range(4)]
    assert first.plan.ranks == 4
    assert all(terms == first for terms in others)


def test_a_store_can_be_used_again() -> None:
    """torch gives the next default group the same name in the same store."""
    store = dist.HashStore()
    first, second = settle_all(3, store), settle_all(3, store)
    assert first[0].group_id != second[0].group_id
    assert all(terms == second[0] for terms in second)


def test_a_plan_can_be_overruled() -> None:
    for terms in settle_all(2, dist.HashStore(), Options(schedule={"all_reduce": "ring"})):
        assert {pick.builder for pick in terms.plan.picks if pick.collective == "all_reduce"} == {"ring"}


def test_an_unknown_builder_is_refused() -> None:
    with pytest.raises(UsageError, match="no such builder"):
        settle(
            card(0),
            Place(dist.HashStore(), "0", 0, 1, timedelta(seconds=1)),
            Options(schedule={"all_reduce": "no such builder"}),
        )


def test_ranks_that_were_told_otherwise_are_named() -> None:
    store = dist.HashStore()
    options = [Options(), Options(), Options(server=1)]

    def rank(number: int) -> Terms:
        place = Place(store, "0", number, 3, timedelta(seconds=10))
        return settle(card(number), place, options[number])

    with ThreadPoolExecutor(3) as pool:
        for terms in pool.map(rank, range(3)):
            assert terms.conflict.startswith("rank 0 was given server none, rank 2 rank 1")


@pytest.mark.parametrize(
    ("mine", "theirs", "says"),
    [
        (Options(transport=Ltp()), Options(), "transport 'ltp' with .*, rank 1 no 'ltp'"),
        (
            Options(transport=Ltp(fraction=0.5)),
            Options(transport=Ltp()),
            "n': 0.5, .*n': 0.98",
        ),
    ],
)
def test_transports_must_agree(mine: Options, theirs: Options, says: str) -> None:
    texts = [json.dumps(options.terms()) for options in (mine, theirs)]
    assert re.search(says, _conflict(texts))
    assert _conflict(texts[:1] * 2) == ""


def test_terms_survive_the_store() -> None:
    (terms,) = settle_all(1, dist.HashStore())
    assert Terms.decode(terms.encode()) == terms


def test_group_ids_differ() -> None:
    ids = {group_id(name, nonce) for name in ("0", "1") for nonce in (b"a", b"b")}
    assert len(ids) == 4
    assert all(0 <= number < 2**64 for number in ids)


def test_one_host_means_shared_memory_for_all() -> None:
    assert one_host([card(0), card(1)])
    assert not one_host([card(0), card(1, boot="another machine")])
    assert not one_host([card(0), card(1, network="another namespace")])
    assert not one_host([card(0), card(1, wire_only=True)])
