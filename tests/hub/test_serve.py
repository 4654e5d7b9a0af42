"""A hub without a group, and members that come when they like: threads of one process, over loopback."""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import tweed
from tests.hooks.nets import equal, make, params
from tests.hub.test_training import alone, loss
from tweed import _core
from tweed.aggregate import All, Cache
from tweed.cadence import LocalSteps
from tweed.collective import Hub, Server
from tweed.compress import ErrorFeedback, Quantise, TopK
from tweed.errors import ShapeMismatch, StrategyError, UsageError
from tweed.links import hello
from tweed.strategy import Strategy

IN_STEP = Strategy(collective=Hub(0, when=All()))
STEPS = 8
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of training waits less long for members that do not come back."""
    monkeypatch.setattr("tweed.hub.keyed.hub_links._PATIENCE_S", 2.0)


def opened(strategy: Strategy | str = IN_STEP, **given: Any) -> tweed.HubRun:
    model, _ = make(0)
    return tweed.serve(model, torch.optim.SGD(model.parameters(), lr=0.02), strategy, **given)


def member(
    address: str, number: int = 0, strategy: Strategy | str = IN_STEP, steps: int = 10**6, **given: Any
) -> dict[str, Any]:
    """A member's plain loop, until the hub ends it or `steps` are done."""
    model, _ = make(number + 5)  # another model: it takes the hub's
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    run = tweed.attach(model, optimizer, strategy, hub=address, **given)
    done = 0
    while not run.over and done < steps:
        loss(model, number, done % 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
    run.detach()
    return {"params": params(model), "over": run.over, "steps": done, "stats": run.stats}


@contextmanager
def members(*calls: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Runs these beside the test, on threads that nobody waits for if the test fails."""
    found: list[Future[Any]] = [Future() for _ in calls]
    for call, future in zip(calls, found, strict=True):
        Thread(target=told, args=(call, future), daemon=True).start()
    yield found
    for future in found:
        future.exception(PATIENCE_S)


def told(call: Callable[[], Any], future: Future[Any]) -> None:
    """Runs `call`; a failure is printed, too: the hub may wait for ever for one who has failed."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - handed on
        traceback.print_exc()
        future.set_exception(error)


def test_in_step_members_have_the_numbers_of_one_process() -> None:
    run = opened(fewest=3)
    batches = lambda number: lambda: member_of_all(run.address, number)  # noqa: E731
    with members(*(batches(number) for number in range(3))) as found:
        run.serve(commits=STEPS)
    run.detach()
    for mine, true in zip(params(run._model), alone(), strict=True):
        torch.testing.assert_close(mine, true)
    for one in found:
        assert equal(one.result(PATIENCE_S)["params"], params(run._model))


def member_of_all(address: str, number: int) -> dict[str, Any]:
    """Batches as those of the ranks 1, 2 and 3."""
    model, _ = make(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    run = tweed.attach(model, optimizer, IN_STEP, hub=address)
    for step in range(STEPS):
        loss(model, number + 1, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert run.over
    run.detach()
    return {"params": params(model)}


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(collective=Hub(0, when=Cache(2))),
        Strategy("difference", LocalSteps(3), collective=Hub(0, tasks=2)),
        Strategy("difference", compress=ErrorFeedback(TopK(0.2)), collective=Hub(0, model=Quantise(8))),
    ],
    ids=["gradients", "local steps", "compressed both ways"],
)
def test_what_goes_in_a_group_goes_without(strategy: Strategy) -> None:
    run = opened(strategy)
    with members(*[lambda n=number: member(run.address, n, strategy) for number in range(3)]) as found:
        run.serve(commits=12)
    run.detach()
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    assert sum(one.result(PATIENCE_S)["stats"].exchanges for one in found) >= 12


def test_a_member_that_is_cut_off_comes_back_and_counts_once() -> None:
    run, heard = opened(fewest=2), []

    def cut(version: int) -> None:
        heard.append(version)
        for link in list(run._members._member_of):
            if version % 3 == 0:
                run._sockets.cut(link, "the test says so")

    with members(*[lambda n=number: member(run.address, n) for number in range(2)]) as found:
        run.serve(commits=10, after=cut)
    run.detach()
    assert heard == list(range(1, 11))
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    assert len(run._members.numbers) == 2


def test_a_hub_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    key = str(tmp_path / "hub.key")
    run = opened(fewest=2, key_file=key)
    with pytest.raises(UsageError, match="in use already"):
        opened(key_file=key)
    place, kept = run.address.partition("@")[2], {}

    def keep(version: int) -> None:
        if version == 4:
            kept.update(run=run.state_dict(), model=params(run._model))
        if version == 6:  # what came after the checkpoint is lost
            raise KeyboardInterrupt

    with members(*[lambda n=number: member(run.address, n) for number in range(2)]) as found:
        with pytest.raises(KeyboardInterrupt):
            run.serve(after=keep)
        run.detach()
        again = opened(listen=place, key_file=key)
        with torch.no_grad():
            for param, value in zip(again._model.parameters(), kept["model"], strict=True):
                param.copy_(value)
        again.load_state_dict(kept["run"])
        versions: list[int] = []
        again.serve(commits=12, after=versions.append)
    again.detach()
    assert again.address == run.address and versions == list(range(5, 13))
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    assert again._members.numbers == run._members.numbers


def test_training_that_has_ended_goes_on_no_further() -> None:
    run = opened()
    with members(lambda: member(run.address)):
        run.serve(commits=3)
    before, versions = params(run._model), list[int]()
    run.serve(commits=3, after=versions.append)
    run.detach()
    assert versions == [] and equal(params(run._model), before)


def refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


def serving(run: tweed.HubRun, commits: int = 10**6) -> Callable[[], None]:
    return lambda: run.serve(commits=commits)


def test_another_strategy_or_model_is_named() -> None:
    run = opened()
    other = Strategy(collective=Hub(0, when=Cache(3)))
    with members(serving(run, 1)):
        refused(lambda: member(run.address, strategy=other), ShapeMismatch, "Cache")
        member(run.address)
    run.detach()


def test_a_false_hub_is_found_out() -> None:
    run = opened()
    key, place = run.address.split("@")
    false = "0" * 64 + "@" + place
    refused(lambda: member(false), UsageError, "not the one that was given for the hub")
    assert run._sockets.key == key
    run.detach()


def test_who_is_not_listed_or_was_expelled_does_not_get_in(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a", "b")]
    keys = [_core.HubLinks(key_file=file).key for file in files]
    run = opened(members=keys)

    def expel(version: int) -> None:
        if version == 3:
            run.expel(keys[0])

    with members(
        lambda: member(run.address, key_file=files[0]), lambda: run.serve(commits=6, after=expel)
    ) as (
        first,
        served,
    ):
        refused(lambda: member(run.address), UsageError, "not on the list")
        refused(lambda: first.result(PATIENCE_S), UsageError, "it was expelled")
        assert member(run.address, key_file=files[1])["over"]
        served.result(PATIENCE_S)
    assert run.refused["unlisted"] == 1 and run.refused["expelled"] >= 1
    run.detach()


def test_a_member_that_says_what_cannot_be_is_cut_off_and_the_others_go_on() -> None:
    run = opened()
    digest = hello.digest(run._members._terms)

    def hostile(say: bytes) -> str:
        links = _core.HubLinks()
        link = links.call(run.address.partition("@")[2])
        links.send(link, hello.packed({"terms": digest}))
        links.send(link, say)
        while True:
            for _, what in links.next(20.0):
                if isinstance(what, str):
                    return what

    head = struct.Struct("<8d")
    nan = float("nan")
    forged = [
        head.pack(31, 0, 0, 0, 0, 0, 0, 0),
        head.pack(2, 1, 4 * 2.0**30, 0, 0, 0, 0, 0),
        b"?",
        head.pack(0, nan, 0, 0, 0, 0, 0, 0),
    ]
    with members(serving(run, 5)):
        assert all(hostile(say) for say in forged)
        assert hostile(bytes(5000))
        assert member(run.address)["over"]
    run.detach()


def test_nothing_but_what_was_granted_moves() -> None:
    run = opened()
    links = _core.HubLinks()
    with members(serving(run, 3)):
        link = links.call(run.address.partition("@")[2])
        links.send(link, hello.packed({"terms": hello.digest(run._members._terms)}))
        links.send(link, struct.pack("<8d", 2, 1, 1 << 20, 0, 0, 0, 0, 0), bytes(1 << 20))
        left = None
        while left is None:
            left = next((what for _, what in links.next(20.0) if isinstance(what, str)), None)
        assert member(run.address)["over"]
    run.detach()


def test_when_all_are_gone_the_hub_waits_for_others() -> None:
    run = opened()
    with members(serving(run, 7)) as (served,):
        assert not member(run.address, steps=3)["over"]
        assert member(run.address, number=1)["over"]
        served.result(PATIENCE_S)
    assert run.members == {}
    run.detach()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"strategy": Strategy()}, StrategyError, "has no hub"),
        ({"strategy": Strategy(collective=Server(0))}, StrategyError, "has no hub"),
        ({"strategy": Strategy(collective=Hub(0), transport="ltp")}, StrategyError, "TCP stream each"),
        ({"listen": "0.0.0.0:0"}, UsageError, "TWEED_SECRET"),
        ({"listen": "nowhere"}, UsageError, "is no address to listen on"),
        ({"members": ["abc"]}, UsageError, "is no key"),
    ],
)
def test_what_cannot_be_served_is_said(given: dict[str, Any], error: type[Exception], text: str) -> None:
    refused(lambda: opened(**given), error, text)


@pytest.mark.parametrize(
    ("hub", "error", "text"),
    [
        ("example.org:7070", UsageError, "is missing: give KEY@"),
        ("abc@127.0.0.1:7070", UsageError, "is not the key of a hub"),
        ("127.0.0.1", UsageError, "is not the address of a hub"),
        ("127.0.0.1:99999", UsageError, "is not the address of a hub"),
    ],
)
def test_what_is_no_hub_is_said(hub: str, error: type[Exception], text: str) -> None:
    refused(lambda: member(hub), error, text)
