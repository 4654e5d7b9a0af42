"""A live standby: hub and standby are processes that are killed, members are threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import tweed
from tests.hub.plans import Plans
from tests.hub.replicated import CACHED, PATIENCE_S, STRATEGY, Member, Site, check, digest, joined, made
from tweed import _core
from tweed.aggregate import All, Cache, Krum, Weighted
from tweed.collective import Hub
from tweed.errors import DataError, StrategyError, Superseded, UsageError
from tweed.hub.keyed.member_link import MemberLink
from tweed.hub.live.event_log import LoggedEvents
from tweed.hub.machine.events import Came
from tweed.hub.replay import replay
from tweed.hub.wire import control
from tweed.hub.wire.control import Kind
from tweed.hub.wire.messages import Entry, Offer, Payload, Sum, Unit
from tweed.order import FirstIn
from tweed.strategy import Strategy
from tweed.testbed import Ranks


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of training waits less long for members that do not come back."""
    monkeypatch.setattr("tweed.hub.keyed.hub_links._PATIENCE_S", 2.0)


def pair(
    folder: Path, commits: int, strategy: Strategy = STRATEGY, standby_commits: int | None = None
) -> tuple[Site, Site, list[Member]]:
    """A hub, its standby, and three members that train; the standby may end earlier, once it is the hub."""
    hub, standby = Site(folder, "a"), Site(folder, "b")
    same = {"strategy": strategy, "fewest": 3}
    hub.start("hub", commits=commits, replicas=[standby.key], **same)
    at_standby = commits if standby_commits is None else standby_commits
    standby.start("replica", commits=at_standby, replicas=[hub.key], replica_of=hub.address, **same)
    return hub, standby, [Member(hub.address, strategy, 0.005) for _ in range(3)]


def ended(members: list[Member]) -> None:
    """All members have heard that training has ended."""
    for member in members:
        member.thread.join(PATIENCE_S)
        assert member.error is None and member.over, member.error


def ended_after(standby: Site, commits: int) -> None:
    """It has taken over, and ended training; there may be more commits where it took over late."""
    what, version = standby.hear()
    assert what == "ended" and version >= commits


def line(version: int, bits: str, follows: bool) -> dict[str, Any]:
    return {"version": version, "bits": bits, "follows": follows}


@pytest.mark.parametrize(
    ("made_after", "bits"),
    [
        ([(3, "c", True), (4, "D", False)], "abcD"),  # it took over before it had 4, and made another
        ([(2, "b", True), (5, "E", False)], "abcdE"),  # it was given 3 and 4 as a whole state
        ([(6, "F", False)], "abcdeF"),
        ([], "abcde"),
    ],
)
def test_logs_are_joined_where_the_next_hub_has_taken_over(
    made_after: list[tuple[int, str, bool]], bits: str
) -> None:
    log = [line(version, one, False) for version, one in enumerate("abcde", start=1)]
    found = joined(log, [line(*each) for each in made_after])
    assert [one["version"] for one in found] == list(range(1, len(bits) + 1))
    assert "".join(one["bits"] for one in found) == bits
    with pytest.raises(AssertionError):  # what it applied is not what the hub had made
        joined(log, [line(2, "X", True)])


def same_bits(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Two processes that have made or applied the same commits."""
    of_other = {line["version"]: line for line in other}
    pairs = [(line, of_other[line["version"]]) for line in one if line["version"] in of_other]
    assert pairs
    for first, second in pairs:
        assert (first["counted"], first["bits"]) == (second["counted"], second["bits"])


@pytest.mark.parametrize("strategy", [STRATEGY, CACHED], ids=["each", "cache"])
def test_a_hub_is_killed_and_nothing_is_lost_or_counted_twice(tmp_path: Path, strategy: Strategy) -> None:
    hub, standby, members = pair(tmp_path, 10**6, strategy, 60)
    standby.wait(25)
    hub.kill()
    ended_after(standby, 60)
    ended(members)
    same_bits(hub.lines(), [line for line in standby.lines() if line["follows"]])
    check(joined(hub.lines(), standby.lines()), members, each=strategy is STRATEGY)
    refuses(lambda: serve(key_file=hub.key_file), UsageError, "may have taken over, and does not answer")


SUMS = Strategy(collective=Hub(0, aggregators=1), order=FirstIn(3))


def aggregates(_rank: int, _size: int, address: str) -> None:
    """A member that is an aggregator."""
    Member(address, SUMS, 0.005, aggregator=True).thread.join()


def test_an_aggregator_is_killed_and_then_the_hub_and_all_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby hears sums from who forms them, and what was on its way is sent again."""
    hub, standby = Site(tmp_path, "a"), Site(tmp_path, "b")
    same = {"strategy": SUMS, "fewest": 3}
    hub.start("hub", replicas=[standby.key], **same)
    standby.start("replica", replicas=[hub.key], replica_of=hub.address, **same)
    with Ranks(aggregates, 1, hub.address) as aggregator:
        members = [Member(hub.address, SUMS, 0.005, aggregator=able) for able in (False, True)]
        standby.wait(20)
        aggregator.kill(0)
    standby.wait(len(standby.lines()) + 20)
    hub.kill()
    standby.wait(len(standby.lines()) + 20)
    for member in members:
        member.stop.set()
    for member in members:
        member.thread.join(PATIENCE_S)
        assert member.error is None
    told = {(member.worker, number) for member in members for number in member.told}
    standby.wait_for(lambda lines: told <= {tuple(task) for line in lines for task in line["counted"]})
    standby.kill()
    log, before = standby.lines(), hub.lines()
    followed = [line for line in log if line["follows"]]
    same_bits(before, followed)
    check(log, members, sums=True)
    assert len(followed) > 20 and not log[-1]["follows"]
    came = [one.message for one in LoggedEvents(f"{hub.log}.events") if isinstance(one, Came)]
    assert any(isinstance(message, Sum) for message in came)
    Plans().put(monkeypatch.setattr)
    model, optimizer = made()
    found = replay(f"{hub.log}.events", model, optimizer, SUMS, commits=before[-1]["version"])
    assert digest(model) == before[-1]["bits"] and found.checked >= len(before) - 1


def test_a_hub_that_ends_training_ends_its_standby(tmp_path: Path) -> None:
    hub, standby, members = pair(tmp_path, 30)
    assert hub.hear() == ("ended", 30)
    assert standby.hear()[0] == "ended"  # the machine that it would have had is not used
    ended(members)
    same_bits(hub.lines(), standby.lines())
    # Where copies came late it took a whole state, and applied fewer.
    assert standby.lines() and all(line["follows"] for line in standby.lines())
    assert not Path(hub.key_file + ".replica").exists()


def test_a_standby_is_killed_training_goes_on_and_another_one_comes(tmp_path: Path) -> None:
    hub, standby, members = pair(tmp_path, 10**6)
    standby.wait(10)
    standby.kill()
    hub.wait(len(hub.lines()) + 20)  # commits go on without a standby
    standby.start("again", replicas=[hub.key], replica_of=hub.address, fewest=3, commits=200)
    standby.wait(10)
    hub.kill()
    ended_after(standby, 200)
    ended(members)
    later = standby.lines()
    before = [line for line in hub.lines() if line["version"] < later[0]["version"]]
    check(before + later, members)


def test_a_hub_that_comes_back_from_its_checkpoint_lets_the_standby_take_over(tmp_path: Path) -> None:
    hub, standby, members = pair(tmp_path, 10**6)
    standby.wait(10)
    hub.kill()
    standby.wait(len(standby.lines()) + 5)
    refuses(lambda: serve(key_file=hub.key_file), Superseded, f"--replica-of {standby.address}")
    hub.start("again", replicas=[standby.key], replica_of=standby.address, fewest=3)
    hub.wait(5)
    for member in members:
        member.stop.set()
    for member in members:
        member.thread.join(PATIENCE_S)
        assert member.error is None
    standby.kill()
    hub.kill()
    same_bits(hub.lines(), [line for line in standby.lines() if line["version"] >= hub.lines()[0]["version"]])


def test_a_hub_whose_links_were_cut_is_told_that_its_standby_serves() -> None:
    """By one with a listed key that says so, over a link of its own."""
    links = _core.HubLinks()
    run = serve(replicas=[links.key])
    found: list[BaseException] = []
    thread = Thread(target=lambda: raised(run.serve, found), daemon=True)
    thread.start()
    link = links.call(run.address.partition("@")[2])
    question = {
        "ask": "replica",
        "terms": run._members._digest,
        "fewest": 1,
        "generation": 1,
        "listen": "b:1",
    }
    links.send(link, control_free(question))
    thread.join(PATIENCE_S)
    assert len(found) == 1 and isinstance(found[0], Superseded) and f"{links.key}@b:1" in str(found[0])
    run.detach()
    links.close()


def control_free(question: dict[str, Any]) -> bytes:
    """A greeting, which is no control message."""
    data = tweed.links.hello.packed(question)
    assert not control.is_control(data)
    return data


def test_a_key_that_is_not_listed_is_no_standby() -> None:
    run = serve()
    thread = Thread(target=lambda: raised(run.serve, []), daemon=True)
    thread.start()
    try:
        refuses(lambda: serve(replica_of=run.address), UsageError, "does not list the key")
        false = "0" * 64 + "@" + run.address.partition("@")[2]
        refuses(lambda: serve(replica_of=false), UsageError, "not the one that was given for the hub")
        refuses(lambda: serve(replica_of=run.address, fewest=2), UsageError, "it was started with fewest=1")
    finally:
        run.detach()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"strategy": Strategy(collective=Hub(0, when=All()), aggregate=Krum(1))}, StrategyError, "Krum"),
        ({"listen": "0.0.0.0:0"}, UsageError, "members are given the address"),
        ({"divergence": 1.0, "adam": True}, UsageError, "bounds the steps of SGD"),
    ],
)
def test_what_can_have_no_standby_is_said(given: dict[str, Any], error: type[Exception], text: str) -> None:
    refuses(lambda: serve(replica_of="f" * 64 + "@127.0.0.1:1", **given), error, text)


@pytest.mark.parametrize("able", [False, True], ids=["alone", "in sums"])
def test_copies_go_first_where_the_bound_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    """All of them, from when on the member has a link to the standby."""
    firsts, send = [], MemberLink._send

    def noting(link: MemberLink, message: Any) -> None:
        if getattr(message, "copy_first", False):
            standby = link._standby
            had = (
                standby.had_sum >= message.group
                if isinstance(message, Sum)
                else standby.had >= message.number
            )
            firsts.append((type(message), had))
        send(link, message)

    monkeypatch.setattr(MemberLink, "_send", noting)
    hub, standby = Site(tmp_path, "a"), Site(tmp_path, "b")
    weighted = Strategy(collective=Hub(0, when=Cache(2)), aggregate=Weighted())
    same = {"strategy": SUMS if able else weighted, "fewest": 2}
    hub.start("hub", commits=20, replicas=[standby.key], divergence=1e-9, **same)
    standby.start("replica", replica_of=hub.address, **same)
    members = [Member(hub.address, same["strategy"], aggregator=able) for _ in range(2)]
    assert hub.hear() == ("ended", 20)
    ended(members)
    assert standby.hear()[0] == "ended"
    same_bits(hub.lines(), standby.lines())
    assert (Sum if able else Payload, True) in firsts


def test_a_log_and_copies_cross_as_they_are() -> None:
    units = tuple(Unit(((n, n + 5),), None, False, n, 0.1 * n, 2.0, n, 0.5) for n in range(3))
    tasks = ((1, 2), (3, 4))
    sums = [Unit(tasks, 6, left_out, 1, None, 2.0, 3, 0.5, via=0) for left_out in (False, True)]
    entries = [Entry(7, units), Entry(8, ()), Entry(9, (units[1], *sums, units[2]))]
    assert control.entries_of(memoryview(control.log_of(entries))) == entries
    offer, body = Offer(4, 3, 1.5, 2.0, 0.25), b"abc"
    message = control.read(bytearray(control.copy_head(6, offer, len(body)) + body))
    found = control.copy_of(2, message)
    assert (found.tasks, found.versions, found.offers) == (((2, 4),), (6,), (offer,))
    total = Sum(6, tasks, torch.tensor([0.1, 2.0]), ((5, 6),), (0.5, 0.25))
    head, body = control.sum_message(total)
    found = control.sum_of(2, control.read(bytearray(head + body)), 2)
    assert (found.key, found.tasks, found.via) == ((6, 2, 0), (*tasks, (5, 6)), 2)
    assert torch.equal(found.content.value, total.value) and found.content.took_s == total.took_s


@pytest.mark.parametrize("seed", range(40))
def test_no_bytes_make_the_readers_fail_otherwise_than_by_name(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    noise = bytes(torch.randint(0, 256, (seed * 5,), generator=draw, dtype=torch.uint8).tolist())
    for data in (
        noise,
        control.head(Kind.LOG, 0, numbytes=len(noise)) + noise,
        control.head(Kind.COPY, 1)[:30],
    ):
        try:
            control.entries_of(control.read(data).body)
        except DataError:
            continue
    with pytest.raises(DataError):
        control.read(control.head(Kind.HELD, 1, numbytes=2**40))
    with pytest.raises(DataError):
        control.copy_of(0, control.read(control.head(Kind.COPY, 1, math.nan)))
    with pytest.raises(DataError):
        control.sum_of(0, control.read(bytearray(control.head(Kind.SUM, 1, numbytes=len(noise)) + noise)), 2)


def serve(adam: bool = False, **given: Any) -> tweed.HubRun:
    """A hub in this process."""
    model, optimizer = made()
    optimizer = torch.optim.Adam(model.parameters()) if adam else optimizer
    return tweed.serve(model, optimizer, **{"strategy": STRATEGY} | given)


def raised(call: Callable[[], Any], found: list[BaseException]) -> None:
    """Keeps what `call` raises."""
    try:
        call()
    except RuntimeError as error:
        found.append(error)


def refuses(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    """It raises that, with that in its text."""
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value), caught.value
