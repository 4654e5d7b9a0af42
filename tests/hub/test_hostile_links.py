"""Links without a group: what members that are hostile, gone or silent can do to a hub and to each other."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

import pytest
import torch

import tweed
from tests.hooks.nets import make
from tests.hub.test_serve import member, members, opened, serving
from tweed import _core
from tweed.collective import Hub
from tweed.compress import Direct, ErrorFeedback, Half, Spec, TopK
from tweed.errors import PeerLost, UsageError
from tweed.hub.aggregator.link import AggregatorLink
from tweed.hub.keyed.hub_links import KeyedLinks
from tweed.hub.keyed.member_link import MemberLink, Seen
from tweed.hub.links.base import Linked
from tweed.hub.machine.worker import Worker
from tweed.hub.standby.replication import Replication
from tweed.hub.wire import bodies
from tweed.hub.wire.form import ContributionForm
from tweed.hub.wire.head import HEAD, head_of
from tweed.hub.wire.messages import (
    End,
    Gather,
    Grant,
    Leave,
    Offer,
    Outcome,
    OutcomeReason,
    Payload,
    Ready,
    Resume,
    Sum,
    Task,
)
from tweed.links import hello
from tweed.links.address import HubAddress
from tweed.strategy import Strategy

JOIN = hello.packed({"terms": hello.digest([])})


def packed(message: Any, numbytes: int = 0) -> bytes:
    return HEAD.pack(*head_of(message, numbytes))


class Sockets:
    """Stands for `HubLinks`: `came` is a list of what each `next` returns."""

    key = "ab" * 32

    def __init__(self, *came: list[tuple[int, Any]]) -> None:
        self.came, self.allowed, self.calls = deque(came), dict[int, int](), 0
        self.ended: dict[int, str] = {}
        self.bytes_come: dict[int, int] = {}

    def next(self, timeout_s: float) -> list[tuple[int, Any]]:
        return self.came.popleft() if self.came else []

    def allow(self, link: int, most: int) -> None:
        self.allowed[link] = most

    def listen(self, address: str) -> str:
        return address

    def admit(self, keys: None, most: int) -> None: ...
    def wake(self) -> None: ...
    def send(self, link: int, head: bytes, body: bytes | None = None, more: bool = False) -> None: ...
    def key_of(self, link: int) -> str | None:
        return self.key

    def come(self, link: int) -> int:
        return self.bytes_come.get(link, 0)

    def cut(self, link: int, why: str) -> None:
        self.ended[link] = why

    def close(self) -> None: ...
    def unsent(self, link: int | None = None) -> int:
        return 0

    def call(self, place: str, key: str | None) -> int:
        self.calls += 1
        if self.calls > 1:
            raise PeerLost("the hub is gone")
        return 1


def keyed(sockets: Sockets, fewest: int = 1) -> KeyedLinks:
    links = KeyedLinks(sockets, [], None, fewest, Replication(sockets, set(), None))  # type: ignore[arg-type]
    links.most_bytes = 1 << 20
    return links


def test_a_greeting_that_is_nested_deeply_ends_no_hub() -> None:
    run = opened()
    with members(serving(run, 1)) as (served,):
        links = _core.HubLinks()
        links.send(links.call(run.address.partition("@")[2]), b"[" * 4000)
        time.sleep(0.5)
        alive = not served.done()
        if alive:
            member(run.address)
        assert alive, f"the hub has ended: {served.exception()!r:.90}"
    run.detach()


def test_one_that_floods_does_not_keep_others_from_being_heard() -> None:
    hub, flooder, honest = _core.HubLinks(), _core.HubLinks(), _core.HubLinks()
    place = hub.listen("127.0.0.1:0")
    bad = flooder.call(place)
    good = honest.call(place)
    joined = [what for _ in range(3) for link, what in hub.next(0.5)]
    assert len(joined) == 2

    def flood() -> None:
        while not flooder.unsent():
            flooder.send(bad, packed(Ready()))

    flood()
    honest.send(good, packed(Ready()))
    rounds, came = 0, 0
    while rounds < 100:
        rounds += 1
        events = hub.next(0.0)
        came += len(events)
        if any(link == 2 for link, _ in events):
            break
        flooder.next(0.0)
        flood()
    for one in (hub, flooder, honest):
        one.close()
    assert rounds < 10, f"not heard in {rounds} turns, while another has said {came} things"


def linked_to(*came: list[tuple[int, Any]]) -> MemberLink:
    link = MemberLink(HubAddress("127.0.0.1:1", None), Sockets(*came), [], away_s=0.0)  # type: ignore[arg-type]
    link.call()
    return link


def test_the_end_that_came_before_the_hub_hung_up_is_heard() -> None:
    """A step that takes longer than the hub waits: both are there when the member looks."""
    link = linked_to(
        [(1, bytearray(hello.packed({"worker": 0, "workers": 1})))],
        [(1, bytearray(packed(End(5)))), (1, "it hung up")],
    )
    came = link.receive()  # raises PeerLost: what had come is thrown away, and the hub called again
    assert came is not None and came[0] == End(5)


def test_a_member_whose_step_outlasts_the_hub_learns_that_training_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same, live."""
    monkeypatch.setattr("tweed.hub.keyed.hub_links._PATIENCE_S", 0.3)
    monkeypatch.setattr(MemberLink.__init__, "__defaults__", (1.0, True))
    run = opened(Strategy(collective=Hub(0)), fewest=2)

    def slow() -> bool:
        model, optimizer = make(3)
        mine = tweed.attach(model, optimizer, Strategy(collective=Hub(0)), hub=run.address)
        for step in range(2):
            for param in model.parameters():
                param.grad = torch.zeros_like(param)
            if step:
                time.sleep(3.0)
            optimizer.step()
        return mine.over

    with members(slow, lambda: member(run.address, strategy=Strategy(collective=Hub(0)))) as (found, _):
        run.serve(commits=4)
        run.detach()
        assert found.result(20.0)


def test_a_link_that_ends_right_after_the_answer_is_called_again() -> None:
    link = linked_to(
        [(1, bytearray(hello.packed({"worker": 0, "workers": 1}))), (1, "it hung up")],
    )
    waited = []
    patience = link._links.next

    def next_(timeout_s: float) -> list[tuple[int, Any]]:
        waited.append(timeout_s)
        assert len(waited) < 3, "it waits on a link that has ended, an hour at a time"
        return patience(timeout_s)

    link._links.next = next_  # type: ignore[method-assign]
    with pytest.raises(PeerLost):  # as the hub does not come back
        link.receive()


def test_samples_that_the_hub_would_refuse_are_refused_at_once() -> None:
    model, optimizer = make(3)
    with pytest.raises(UsageError, match="samples=-1"):
        tweed.attach(model, optimizer, Strategy(collective=Hub(0)), hub="127.0.0.1:1", samples=-1.0)


def test_a_grant_of_a_link_that_is_gone_lets_nothing_in() -> None:
    sockets = Sockets([(1, b"k" * 32)], [(1, bytearray(JOIN))], [(1, bytearray(packed(Offer(1, 1 << 20))))])
    links = keyed(sockets)
    for _ in range(3):
        links.next(0.0)
    links.tell(0, Grant(1), None)
    assert sockets.allowed[1] > 1 << 20
    sockets.came.extend([[(1, "cut")], [(2, b"k" * 32)], [(2, bytearray(JOIN))]])
    links.next(0.0)  # its lease ends meanwhile; `Hub._tell` says nothing to who is not there
    for _ in range(2):
        links.next(0.0)
    assert sockets.allowed[2] < 1 << 20


def test_who_sends_a_sum_of_something_else_is_named_and_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """A group that is void by now is no fault: its sum may have been under way."""
    sockets = Sockets([(1, b"k" * 32)], [(1, bytearray(JOIN))])
    links = keyed(sockets)
    links.numel = 2
    for _ in range(2):
        links.next(0.0)
    tasks = ((0, 1), (0, 2))
    links.tell(0, Gather(7, tasks, 1.0), None)
    for group, named in ((6, ((3, 4),)), (7, tasks[:1]), (7, ((3, 4),))):
        body = bodies.pack_sum(Sum(group, named, torch.ones(2), tasks[1:]))
        assert len(body) <= sockets.allowed[1]
        sockets.came.append([(1, bytearray(packed(Sum(group, (), None), len(body)) + body))])
        assert [message.group for _, message in links.next(0.0)] == [group]
    links.tell(0, Gather(8, tasks, 1.0), None)
    for named in (((3, 4),), tasks):  # the second of which is named twice
        links.tell(0, Gather(8, tasks, 1.0), None)
        body = bodies.pack_sum(Sum(8, named, torch.ones(2), tasks[1:]))
        sockets.came.append([(1, bytearray(packed(Sum(8, (), None), len(body)) + body))])
        assert links.next(0.0) == []
        assert "it was asked for the sum of ((0, 1), (0, 2)), and sends one of" in caplog.messages[-1]


def test_an_aggregator_keeps_what_counted_until_it_knows_that_the_standby_is_the_hub() -> None:
    """Its thread knows before its worker does; what the standby lacks is sent again then."""
    sockets, place = Sockets(), HubAddress("127.0.0.1:1", None)
    link, worker = AggregatorLink(place, sockets, [], "127.0.0.1:2"), Worker()  # type: ignore[arg-type]
    link._standby.named(1, "127.0.0.1:3")
    link._show()
    for message in (Task(1, 0), Grant(1), Outcome(1, OutcomeReason.COUNTED)):
        worker.computed(Offer(1, 8), b"")
        worker.keeps = link.keeps
        worker.handle(message)
        link.replicate(worker)
    link._shown, link._standby.serves = (-1, Seen()), True
    link._standby.take()  # as the thread does
    link.replicate(worker)
    assert worker.keeping == 1 and link.keeps
    link._made_links += 1
    link._show()
    link._told.put(True)
    link.replicate(worker)
    assert worker.keeping == 1 and link.receive() is None and link.renewed
    worker.renewed()
    link.replicate(worker)
    assert worker.keeping == 0 and Resume(Offer(1, 8), 0) in list(worker._out)


def test_what_comes_before_there_are_enough_members_is_bounded() -> None:
    sockets = Sockets([(1, b"k" * 32)], [(1, bytearray(JOIN))])
    links = keyed(sockets, fewest=2)
    sockets.came.extend([[(1, bytearray(packed(Ready())))] * 1000] * 50)
    while sockets.came:
        links.next(0.0)
    assert len(links._early or ()) < 1000


def test_a_hub_keeps_nothing_as_large_as_the_model_of_members_that_are_gone() -> None:
    strategy = Strategy(compress=ErrorFeedback(TopK(0.2)), collective=Hub(0))
    run = opened(strategy)
    with members(serving(run, 9)):
        for number in range(3):
            member(run.address, number, strategy, steps=2)
        member(run.address, 3, strategy)
    forms = run._exchange._forms
    run.detach()
    assert all(form._error is None for form in forms.values()), f"{len(forms)} members, a residual of each"


def test_a_member_of_a_high_number_is_not_cut_short() -> None:
    """Half divides its range by the number of ranks that are added up; at a hub none are."""
    form = ContributionForm(
        Strategy(compress=Direct(Half("float16")), collective=Hub(0)), Spec(((4,),)), 5000
    )
    _, data = form.offer(torch.full((4,), 50.0), 1)
    assert form.decode(data, 1).tolist() == [50.0] * 4


def test_a_member_that_is_expelled_while_it_is_away_is_given_up() -> None:
    sockets = Sockets([(1, b"k" * 32)], [(1, bytearray(JOIN))], [(1, "cut")])
    links = keyed(sockets)
    for _ in range(3):
        links.next(0.0)
    links.forget(lambda key: True)
    assert (0, Leave()) in links.next(0.0), "the hub's machine waits until its lease ends, in step too"


def test_bad_greetings_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sockets = Sockets()
    links = keyed(sockets)
    for link in range(200):
        sockets.came.append([(link, b"k" * 32), (link, bytearray(b'"' + b"x" * 4000 + b'"'))])
    with caplog.at_level(logging.WARNING, logger="tweed"):
        while sockets.came:
            links.next(0.0)
    size = sum(len(record.getMessage()) for record in caplog.records)
    assert size < 10_000, f"{len(caplog.records)} lines of {size} characters, which a caller has chosen"


@pytest.mark.parametrize(
    "given", [{"fewest": 3, "most": 1}, {"most": 0}, {"most": -1}, {"members": "ab" * 32}]
)
def test_a_hub_that_nobody_can_train_with_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(**given).detach()


def test_a_member_that_was_granted_something_and_stalls_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr("tweed.hub.keyed.hub_links.time.monotonic", lambda: clock[0])
    greeting = bytearray(hello.packed({"terms": hello.digest([])}))
    sockets = Sockets(*([(link, bytes([link] * 32)), (link, greeting)] for link in (1, 2, 3)))
    links = keyed(sockets)
    for _ in range(3):
        links.next(0.0)
    for one in (0, 1, 2):
        links.tell(one, Grant(1), None)
    sockets.came.append([(1, bytearray(packed(Payload(1, None), 4) + bytes(4)))])
    links.next(0.0)
    heard = []
    for _ in range(40):  # member 2 is slow, and member 1 stalls
        clock[0] += 0.5
        sockets.bytes_come[3] = sockets.bytes_come.get(3, 0) + 1
        heard += links.next(clock[0])
        sockets.came.extend([[(2, sockets.ended[2])]] if sockets.ended and not heard else [])
    assert list(sockets.ended) == [2] and "no byte of that came for 5.0 s" in sockets.ended[2]
    assert heard == [(1, Linked.LEFT)] and "hangs up on member 1" in caplog.text
