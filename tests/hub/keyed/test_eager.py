"""Payloads that come with their offers: what a hub keeps of them, and when it hands them on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tweed.collective import Hub
from tweed.hub.keyed.eager import EagerPayloads, eager_bytes
from tweed.hub.machine.worker import Compute, Worker
from tweed.hub.wire.framing import framed, split
from tweed.hub.wire.head import body_of, from_hub, from_worker, head_of
from tweed.hub.wire.messages import EagerOffer, Grant, Offer, Payload, Ready, Task
from tweed.order import FirstIn
from tweed.strategy import Strategy

BODY = torch.arange(8, dtype=torch.uint8)


ONE = Offer(1, 8)


def offered(offer: Offer = ONE, body: torch.Tensor = BODY, allowed: bool = True) -> EagerPayloads:
    """What member 3 has offered is here."""
    eager = EagerPayloads(most_bytes=8)
    if allowed:
        assert eager.allow(3) == eager.room(3) == 8
    eager.offered(3, offer, body)
    assert eager.room(3) == 0
    return eager


def test_what_is_granted_arrives_once() -> None:
    eager = offered()
    assert eager.granted(3, Grant(1)) and not eager.granted(3, Grant(1))
    assert eager.arrived == [(3, Payload(1, BODY))]


@pytest.mark.parametrize("grant", [Grant(2), Grant(1, via=4), Grant(1, copy_first=True)])
def test_another_grant_goes_to_the_member(grant: Grant) -> None:
    eager = offered()
    assert not eager.granted(3, grant) and not eager.granted(3, Grant(1))
    assert not eager.arrived


@pytest.mark.parametrize("offer", [Offer(1, 7), Offer(1, 9), Offer(1, 0)])
def test_what_is_not_as_announced_is_dropped(offer: Offer) -> None:
    assert not offered(offer).granted(3, Grant(1))


def test_what_was_not_allowed_is_dropped() -> None:
    assert not offered(allowed=False).granted(3, Grant(1))
    assert not offered(Offer(1, 9), torch.zeros(9, dtype=torch.uint8)).granted(3, Grant(1))


def test_an_outcome_ends_what_was_kept_and_what_was_allowed() -> None:
    eager = offered()
    eager.over(3)
    assert not eager.granted(3, Grant(1))
    eager.allow(3)
    eager.over(3)
    assert eager.room(3) == 0


def test_no_more_members_are_allowed_than_a_hub_has_memory_for() -> None:
    eager = EagerPayloads(most_bytes=8)
    assert [eager.allow(member) for member in range(65)] == [8] * 64 + [0]
    eager.offered(0, Offer(1, 8), BODY)  # what is kept counts, too
    assert (eager.allow(65), eager.allow(1)) == (0, 8)
    eager.over(0)
    assert eager.allow(65) == 8


def test_a_hub_with_an_order_or_aggregators_decides_first() -> None:
    assert eager_bytes(Strategy(collective=Hub(0))) > 0
    assert eager_bytes(Strategy(collective=Hub(0), order=FirstIn(4))) == 0
    assert eager_bytes(Strategy(collective=Hub(0, aggregators=2))) == 0


def test_an_offer_crosses_with_its_payload() -> None:
    offer = Offer(7, 8, 2.5, 3.0, 0.5, 0, 0.25)
    message = EagerOffer(offer, BODY)
    body = body_of(message)
    assert body is not None
    head, came = split(bytearray(framed(message, len(body)) + body))
    assert from_worker(head, came) == offer and torch.equal(came, BODY)
    task = Task(7, 5, None, 1 << 18)
    assert from_hub(head_of(task)) == task


def computing(eager: int) -> Worker:
    worker = Worker()
    worker.linked()
    assert worker.poll() == Ready(0)
    worker.handle(Task(1, 0, eager_bytes=eager))
    assert isinstance(worker.poll(), Compute)
    return worker


@pytest.mark.parametrize(("allowed", "eager"), [(0, False), (7, False), (8, True)])
def test_a_worker_sends_its_payload_along_where_the_task_allows_it(allowed: int, eager: bool) -> None:
    worker, value = computing(allowed), np.ones(2)
    worker.computed(Offer(1, 8), value)
    offer = worker.poll()
    assert isinstance(offer, Offer) and worker.poll() is None
    assert worker.as_sent(offer) == (EagerOffer(offer, value) if eager else offer)
    worker.handle(Grant(1))  # the hub asks for it all the same
    assert worker.poll() == Payload(1, value)


@pytest.mark.parametrize("when", ["computing", "offering"])
def test_over_another_link_an_offer_goes_alone(when: str) -> None:
    worker = computing(8)
    if when == "computing":
        worker.linked()
    worker.computed(Offer(1, 8), np.ones(2))
    if when == "offering":
        worker.poll()
        worker.linked()
    offer = worker.poll()
    assert isinstance(offer, Offer) and worker.as_sent(offer) == offer


def test_an_empty_offer_goes_alone() -> None:
    worker = computing(8)
    worker.computed(replace(Offer(1, 0), norm=math.nan), np.ones(0))
    offer = worker.poll()
    assert isinstance(offer, Offer) and worker.as_sent(offer) is offer
