"""What a member does for others, and its ways to others: links are lists, and nothing has a clock."""

from __future__ import annotations

import math
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.machine.test_aggregators import Direct, told
from tweed.errors import DataError, PeerLost
from tweed.hub.aggregator.service import Service
from tweed.hub.keyed.ways import Ways
from tweed.hub.machine.worker import Worker
from tweed.hub.wire import bodies
from tweed.hub.wire.bodies import Part
from tweed.hub.wire.framing import SMALL_BYTES, framed, split
from tweed.hub.wire.head import HEAD, NUMBERS, from_hub, from_way, from_worker, head_of
from tweed.hub.wire.messages import (
    Blocked,
    CancelGroup,
    Gather,
    Grant,
    Handed,
    ModelGrant,
    ModelRequest,
    Offer,
    Payload,
    Ready,
    Sum,
    Task,
)
from tweed.links.address import HubAddress

KEYS = ["a" * 64, "b" * 64, "c" * 64]


class Wires:
    """Links that keep what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any, bytes]] = []
        self.most: dict[int, int] = {}
        self.ended: dict[int, str] = {}
        self.down = False
        self.answers = Event()
        self.answers.set()

    def call(self, address: str, key: str | None = None) -> int:
        self.answers.wait()
        if self.down:
            raise PeerLost("nobody is there")
        return 7

    def key_of(self, link: int) -> str | None:
        return KEYS[0]

    def send(self, link: int, head: bytes, body: bytes | None = None) -> None:
        self.sent.append((link, HEAD.unpack(head), body or b""))

    def allow(self, link: int, most_bytes: int) -> None:
        self.most[link] = most_bytes

    def cut(self, link: int, why: str) -> None:
        self.ended[link] = why


def said(message: Any, body: bytes = b"") -> bytearray:
    return bytearray(framed(message, len(body)) + body)


def payload(member: int) -> bytes:
    return bytes([member + 1] * 8)


def service() -> tuple[Service, Wires]:
    """Member 0, at which 1 and 2 have links 1 and 2; a group of all three."""
    wires = Wires()
    one = Service(wires, KEYS[0], lambda worker, data, number: data.double() * 10**worker)
    for member in (1, 2):
        one.joined(member, KEYS[member])
    return one, wires


def gather(one: Service, now: float = 0.0, numbytes: int = 8) -> None:
    parts = [Part(member, 5, member, numbytes, key) for member, key in enumerate(KEYS)]
    one.gather(Gather(3, (), 10.0), parts, now)


@pytest.mark.parametrize("early", [True, False])
def test_what_the_hub_has_named_may_come_whoever_is_first(early: bool) -> None:
    one, wires = service()
    if not early:
        gather(one)
    for member in (1, 2):
        one.heard(member, said(Offer(5, 8)), 0.0)
        assert wires.sent == [] or not early
    if early:
        gather(one)
    assert sorted((link, from_way(head)) for link, head, _ in wires.sent) == [(1, Grant(5)), (2, Grant(5))]
    for member in (2, 1):
        one.heard(member, said(Payload(5, None), payload(member)), 1.0)
    assert one.poll() is None
    assert one.sent_by_itself(Payload(5, torch.tensor(list(payload(0)), dtype=torch.uint8)), 2.0)
    found = one.poll()
    assert found is not None and found.tasks == ((0, 5), (1, 5), (2, 5)) and found.took_s == (2.0, 1.0, 1.0)
    assert found.value.tolist() == [321.0] * 8
    assert wires.most[1] == HEAD.size + SMALL_BYTES and wires.ended == {}


@pytest.mark.parametrize(
    "say",
    [
        said(Payload(5, None), bytes(8)),  # without a grant
        said(Ready(0)),
        said(Offer(5, 9)),  # other than the hub was told
        bytearray(b"?"),
        bytearray(framed(Payload(5, None), 4)),
        bytearray(HEAD.pack(*[math.nan] * NUMBERS)),
    ],
)
def test_who_says_what_was_not_announced_is_cut_off(say: bytearray) -> None:
    one, wires = service()
    gather(one)
    one.heard(1, say, 0.0)
    assert 1 in wires.ended and not any(link == 1 for link, _, _ in wires.sent)
    one.heard(1, said(Offer(5, 8)), 0.0)  # it is a stranger now
    assert wires.sent == []


def test_a_stranger_with_the_secret_gets_neither_model_nor_leave_to_send() -> None:
    one, wires = service()
    one.joined(9, "d" * 64)
    gather(one)
    one.holds(4, torch.zeros(8, dtype=torch.uint8))
    one.grant_model(ModelGrant(4, 2), KEYS[2])
    one.heard(9, said(Offer(5, 8)), 0.0)
    one.heard(9, said(ModelRequest(4, 0)), 0.0)
    assert wires.sent == [] and wires.most == {}


@pytest.mark.parametrize("early", [True, False])
def test_a_model_goes_to_whom_the_hub_has_named(early: bool) -> None:
    one, wires = service()
    model = torch.arange(8, dtype=torch.uint8)
    steps = [
        lambda: one.grant_model(ModelGrant(4, 1), KEYS[1]),
        lambda: one.heard(1, said(ModelRequest(4, 0)), 0.0),
        lambda: one.holds(4, model),
    ]
    for step in reversed(steps) if early else steps:
        assert wires.sent == []
        step()
    [(link, head, body)] = wires.sent
    assert (link, from_way(head), body) == (1, Handed(4), model.numpy().tobytes())


def test_what_is_longer_than_the_hub_was_told_is_left_out_of_the_sum() -> None:
    """Or whoever offers little and sends much would make its aggregator a liar."""
    one, _ = service()
    norms = [torch.ones(8).norm() * n * 10**member for member, n in enumerate((1, 1.99, 3))]
    one.gather(
        Gather(3, (), 10.0),
        [Part(n, 5, n, 8, KEYS[n], float(norm)) for n, norm in enumerate(norms)],
        0.0,
    )
    for member in (1, 2):
        one.heard(member, said(Offer(5, 8)), 1.0)
        one.heard(member, said(Payload(5, VALUE), payload(member)), 2.0)
    one.sent_by_itself(Payload(5, torch.ones(8, dtype=torch.uint8)), 2.0)
    found = one.poll()
    assert found is not None and found.tasks == ((0, 5), (2, 5)) and found.left_out == ((1, 5),)


def test_what_is_void_is_forgotten() -> None:
    one, wires = service()
    gather(one)
    one.heard(1, said(Offer(5, 8)), 0.0)
    one.cancel_group(CancelGroup(3), 0.5)
    one.heard(1, said(Payload(5, None), payload(1)), 1.0)  # it was let, and is no offence
    one.heard(2, said(Offer(5, 8)), 1.0)
    one.passed(99.0)
    assert one.poll() is None and wires.ended == {} and len(wires.sent) == 1
    assert one.deadline() == math.inf and not one.sent_by_itself(Payload(5, torch.zeros(8)), 1.0)


def test_when_time_is_over_what_is_there_goes() -> None:
    one, _ = service()
    gather(one)
    one.heard(2, said(Offer(5, 8)), 0.0)
    one.heard(2, said(Payload(5, None), payload(2)), 1.0)
    one.passed(one.deadline())
    found = one.poll()
    assert found is not None and found.tasks == ((2, 5),)


# Ways

PLACE = HubAddress("127.0.0.1:7000", KEYS[0])
VALUE = torch.zeros(8, dtype=torch.uint8)


def ways() -> tuple[Ways, Wires]:
    wires = Wires()
    found = Ways(wires)
    found.named(3, PLACE)
    return found, wires


def begun(found: Ways, wires: Wires, message: Payload | ModelRequest) -> list[Any]:
    """What the worker hears of it until it is under way, or blocked."""
    said = len(wires.sent)
    heard = list(found.send(message, 0.0))
    while not heard and len(wires.sent) == said:
        heard += found.turn(0.0)
    return heard


def test_a_payload_goes_when_it_is_asked_for() -> None:
    found, wires = ways()
    assert begun(found, wires, Payload(5, VALUE, via=3)) == []
    assert found.heard(7, said(Grant(4))) == [] and len(wires.sent) == 1  # of something else
    assert found.heard(7, said(Grant(5))) == []
    assert [len(body) for _, _, body in wires.sent] == [0, 8]


@pytest.mark.parametrize("end", ["down", "gone", "hung up", "said what cannot be"])
def test_a_way_that_ends_is_blocked(end: str) -> None:
    found, wires = ways()
    wires.down = end == "down"
    if end == "gone":
        found.named(3, None)
    for message, lost in ((Payload(5, VALUE, via=3), Blocked(5)), (ModelRequest(9, 3), Handed(9, False))):
        heard = begun(found, wires, message)
        if end == "hung up":
            heard += found.heard(7, "it hung up")
        elif end == "said what cannot be":
            heard += found.heard(7, said(Ready(0)))
        assert [one for one, _ in heard] == [lost]
    assert found.heard(7, "it hung up") == []


def test_what_goes_another_way_is_broken_off() -> None:
    found, wires = ways()
    begun(found, wires, Payload(5, VALUE, via=3))
    found.give_up()
    assert 7 in wires.ended and not found.owns(7)


def test_who_does_not_answer_holds_up_nobody_and_its_link_is_kept_for_the_next_time() -> None:
    found, wires = ways()
    wires.answers.clear()
    found.hub_s = 1.0
    assert found.send(Payload(5, VALUE, via=3), 0.0) == []  # and comes back
    assert found.turn(3.9) == [] and found.wait_s(3.9) < 0.1
    assert [one for one, _ in found.turn(4.0)] == [Blocked(5)]
    assert found.turn(5.0) == []
    wires.answers.set()
    while not found.owns(7):
        assert found.turn(6.0) == []
    assert wires.sent == [] and found.send(ModelRequest(9, 3), 7.0) == [] and len(wires.sent) == 1


# The hub's and the worker's part


def test_a_worker_tells_the_hub_that_its_way_is_blocked() -> None:
    worker = Worker()
    worker.handle(Task(1, 0))
    worker.poll()
    worker.computed(Offer(1, 8), "value")
    worker.handle(Grant(1, via=3))
    assert [worker.poll(), worker.poll()] == [Offer(1, 8), Payload(1, "value", 3)]
    worker.handle(Blocked(1))
    assert worker.poll() == Blocked(1)
    worker.handle(Grant(1))
    assert worker.poll() == Payload(1, "value")
    worker.handle(Blocked(1))
    assert worker.poll() is None


def test_a_blocked_way_voids_the_group_and_its_aggregator_rests() -> None:
    direct = Direct()
    found = direct.say(1, Blocked(1), now=1.0)
    assert told(found, 9) == [CancelGroup(1)] and told(found, 1) == told(found, 2) == [Grant(1)]
    aggregation = direct.hub.aggregation
    assert aggregation is not None
    assert list(aggregation._free([8, 9], 2.0)) == [8] and list(aggregation._free([8, 9], 11.0)) == [8, 9]
    assert direct.say(1, Blocked(1), now=2.0) == []


def test_an_aggregator_that_does_not_come_to_a_sum_costs_no_contribution() -> None:
    direct = Direct()
    direct.hub.passed(20.0)  # twice payload_s
    found = direct.actions()
    assert told(found, 1) == told(found, 2) == [Grant(1)] and told(found, 9) == [CancelGroup(1)]
    direct.hub.passed(31.0)  # and then it is theirs
    assert [type(one).__name__ for one in told(direct.actions(), 1)][:1] == ["Outcome"]


def test_only_who_offered_it_is_asked() -> None:
    direct = Direct()
    aggregation = direct.hub.aggregation
    assert aggregation is not None
    aggregation.able = {9}
    assert list(aggregation._free([1, 2, 9], 5.0)) == []  # it has a group
    direct.hub.may_aggregate(9, 5.0)  # over a new link: it knows nothing of that group
    found = direct.actions()
    assert told(found, 1) == told(found, 2) == [Grant(1)] and told(found, 9) == [CancelGroup(1)]
    assert list(aggregation._free([1, 2, 9], 5.0)) == [9]
    direct.hub.left(9, 6.0)
    assert list(aggregation._free([1, 2, 9], 7.0)) == []


# What crosses


def test_heads_come_back_as_they_were() -> None:
    for message in (
        Task(1, 2, 0),
        Task(1, 2),
        Grant(3, 4),
        Grant(3, None, True),
        Gather(2, (), 1.5),
        Gather(2, (), 1.5, True),
        CancelGroup(9),
        ModelGrant(3, 0),
    ):
        assert from_hub(head_of(message)) == message
    for said_of in (Offer(1, 8, 1.0, 2.0, 3.0, 0, 0.5), Blocked(4), ModelRequest(6, 0)):
        assert from_worker(head_of(said_of), None) == said_of
    assert [from_way(head_of(one)) for one in (Handed(3), Handed(3, False))] == [Handed(3), Handed(3, False)]


def test_bodies_come_back_as_they_were() -> None:
    parts = [Part(1, 2, 3, 4, KEYS[0]), Part(5, 6, 7, 8, KEYS[1])]
    assert bodies.read_parts(bodies.pack_parts(parts)) == parts
    assert bodies.read_address(str(PLACE).encode()) == PLACE and bodies.read_address(b"") is None
    found = Sum(4, ((1, 2), (3, 4)), torch.tensor([1.5, -2.0]), ((5, 6),), (0.25, 0.5))
    data = torch.frombuffer(bytearray(bodies.pack_sum(found)), dtype=torch.uint8)
    assert data.numel() <= bodies.sum_room(2, 3)
    again = bodies.read_sum(4, data, 2)
    assert (again.tasks, again.left_out, again.took_s) == (found.tasks, found.left_out, found.took_s)
    assert again.value.tolist() == [1.5, -2.0]


@given(st.binary(max_size=80), st.integers(0, 3))
def test_what_is_no_body_is_refused_by_name(data: bytes, numel: int) -> None:
    tensor = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    )
    for read in (
        lambda: bodies.read_parts(data),
        lambda: bodies.read_address(data),
        lambda: bodies.read_sum(1, tensor, numel),
        lambda: split(bytearray(data)),
    ):
        with suppress(DataError):
            read()
