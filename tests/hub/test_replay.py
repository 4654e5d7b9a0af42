"""A hub's log: what a live hub did comes again from it, bit for bit."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import equal, make, params
from tests.hub.test_serve import PATIENCE_S, member, members
from tests.hub.test_training import loss, ready, train
from tweed.aggregate import Cache, Krum, Weighted, ZenoPlusPlus
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import ErrorFeedback, Quantise, TopK
from tweed.errors import DataError, StrategyError, TweedError, UsageError
from tweed.hub.live.event_log import EventLog, LoggedEvents
from tweed.hub.live.replaying import Replaying
from tweed.hub.machine.events import Answered, Passed
from tweed.hub.replay import Replay, replay
from tweed.hub.wire.messages import Outcome, OutcomeReason
from tweed.order import BoundedDelay
from tweed.simulate.flat import Flat
from tweed.simulate.hub import Conditions
from tweed.simulate.hub_training import HubTraining, Members
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

SPARSE = ErrorFeedback(TopK(0.2))
STRATEGIES: dict[str, Strategy] = {
    "a rule": Strategy(
        compress=SPARSE, collective=Hub(0, when=Cache(3), model=Quantise(8)), aggregate=Krum(1)
    ),
    "what is late is dropped": Strategy(
        "difference", LocalSteps(2), SPARSE, BoundedDelay(1), Hub(0), aggregate=Weighted()
    ),
    "models": Strategy("model", LocalSteps(2), collective=Hub(0, when=Cache(2))),
    "trusted samples": Strategy(compress=SPARSE, collective=Hub(0), aggregate=ZenoPlusPlus(lr=0.02)),
}
COMMITS = 12


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of training waits less long for members that do not come back."""
    monkeypatch.setattr("tweed.hub.keyed.hub_links._PATIENCE_S", 2.0)


def made(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """With momentum: the optimizer has a state."""
    model, _ = make(seed)
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def momenta(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [one["momentum_buffer"] for one in optimizer.state_dict()["state"].values()]


def again(path: Path, strategy: Strategy, **given: Any) -> tuple[Replay, list[Tensor], list[Tensor]]:
    """A replay that begins with other values than the hub did."""
    model, optimizer = made(9)
    found = replay(path, model, optimizer, strategy, **given)
    return found, params(model), momenta(optimizer)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_live_hub_comes_again_from_its_log(name: str, tmp_path: Path) -> None:
    strategy, late = STRATEGIES[name], list[int]()
    model, optimizer = made()
    run = tweed.serve(model, optimizer, strategy, fewest=3)
    tell, committed, middle = run._members.tell, list[Any](), list[Tensor]()

    def told(number: int, message: Any, content: Any) -> None:
        late.extend([number] * (isinstance(message, Outcome) and message.why is OutcomeReason.LATE))
        tell(number, message, content)

    def after(version: int) -> None:
        committed.append(tuple(run.contributions))
        middle[:] = params(model) if version == 5 else middle
        if version == 7:
            run._sockets.cut(next(iter(run._members._member_of)), "the test says so")

    run._members.tell = told  # type: ignore[method-assign]
    calls = [lambda n=number: member(run.address, n, strategy) for number in range(3)]
    with members(*calls):
        run.serve(commits=COMMITS, trusted=lambda n: loss(model, 1, n), after=after, log=tmp_path / "a.log")
    run.detach()
    found, values, momentum = again(tmp_path / "a.log", strategy)
    assert equal(values, params(model)) and equal(momentum, momenta(optimizer))
    assert [one.contributions for one in found.commits] == committed
    assert (found.checked, found.processes, found.unfinished_bytes) == (COMMITS, 1, 0)
    assert repr(found.state["hub"]) == repr(run.state_dict()["exchange"]["hub"])
    assert found.state["questions"] == run.state_dict()["exchange"]["questions"]
    assert bool(late) == (name == "what is late is dropped")
    asked = any(isinstance(one, Answered) for one in LoggedEvents(tmp_path / "a.log"))
    assert asked == (name in ("trusted samples", "a rule"))
    _, values, _ = again(tmp_path / "a.log", strategy, commits=5)
    assert equal(values, middle)


KILLED = """
import os, signal, sys, torch, tweed
from tests.hub.test_replay import STRATEGIES, made
from tweed.files import write_atomic
model, optimizer = made()
strategy = STRATEGIES["a rule"]
run = tweed.serve(model, optimizer, strategy, fewest=3, key_file="hub.key")
write_atomic(__import__("pathlib").Path("address"), run.address)
print(run.address, flush=True)
def after(version):
    if version == 4:
        torch.save([part.state_dict() for part in (run, model, optimizer)], "kept")
    if version == 6:
        torch.save([param.detach() for param in model.parameters()], "last")
        os.kill(os.getpid(), signal.SIGKILL)
run.serve(after=after, log="a.log")
"""


def test_a_hub_that_was_killed_replays_and_goes_on_with_its_log(tmp_path: Path) -> None:
    strategy = STRATEGIES["a rule"]
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}){KILLED}",
    ]
    hub = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert hub.stdout is not None
    address = hub.stdout.readline().strip()
    with members(*[lambda n=number: member(address, n, strategy) for number in range(3)]) as found:
        assert hub.wait(PATIENCE_S) == -signal.SIGKILL
        first, values, _ = again(tmp_path / "a.log", strategy)
        assert equal(values, torch.load(tmp_path / "last"))
        assert [one.version for one in first.commits] == list(range(1, 7)) and first.checked == 6
        with (tmp_path / "a.log").open("ab") as log:  # as if it was writing
            log.write(b"\x20\0\0\0")
        model, optimizer = made()
        key, listen = str(tmp_path / "hub.key"), address.partition("@")[2]
        run = tweed.serve(model, optimizer, strategy, key_file=key, listen=listen)
        for part, state in zip((run, model, optimizer), torch.load(tmp_path / "kept"), strict=True):
            part.load_state_dict(state)
        run.serve(commits=COMMITS, log=tmp_path / "a.log")
        run.detach()
    assert all(one.result(PATIENCE_S)["over"] for one in found)
    second, values, momentum = again(tmp_path / "a.log", strategy)
    assert equal(values, params(model)) and equal(momentum, momenta(optimizer))
    assert [one.version for one in second.commits] == list(range(1, COMMITS + 1))
    assert second.processes == 2 and second.checked == COMMITS + 2  # two were lost
    assert second.commits[:4] == first.commits[:4]
    counted = [(one.member, one.number) for commit in second.commits for one in commit.contributions]
    assert len(counted) == len(set(counted))


def with_log(rank: int, size: int, strategy: Strategy, path: str) -> dict[str, Any]:
    model, optimizer = ready(strategy, rank)
    if rank:
        return train(rank, size, strategy)
    run = tweed.attach(model, optimizer, strategy)
    run.serve(log=path)
    run.detach()
    return {"params": params(model), "exchanges": run.stats.exchanges}


def test_a_hub_of_ranks_keeps_one_too(tmp_path: Path) -> None:
    strategy, path = STRATEGIES["models"], tmp_path / "a.log"
    hub, *_ = run_ranks(with_log, 3, strategy, str(path), backend="tweed")
    model, optimizer = ready(strategy, 0)
    found = replay(path, model, optimizer, strategy)
    assert equal(params(model), hub["params"]) and found.checked == hub["exchanges"]


@pytest.mark.parametrize("name", ["a rule", "what is late is dropped", "models"])
def test_a_virtual_hub_is_replayed_by_the_same_reader(name: str, tmp_path: Path) -> None:
    strategy = STRATEGIES[name]
    sgd = lambda given: torch.optim.SGD(given, lr=0.02, momentum=0.5)  # noqa: E731
    log, (model, _) = EventLog(tmp_path / "a.log"), make(0)
    conditions = Conditions(4, lambda member, task: 1.0 + 0.3 * member, cuts=0.05, crashes=0.5, seed=3)
    learned = Members(lambda member, model, number: loss(model, member, number), sgd)
    training = HubTraining(model, strategy, conditions, learned, sgd, log=log)
    training.run.until(updates=15)
    log.close()
    copy, _ = make(1)
    flat = Flat(copy)
    optimizer = sgd([flat.param])

    def step() -> None:
        flat.grads.copy_(
            torch.cat([param.grad.flatten() for param in copy.parameters() if param.grad is not None])
        )
        optimizer.step()

    walk = Replaying(copy, optimizer, strategy, LoggedEvents(tmp_path / "a.log"), step)
    assert list(walk.versions()) == list(range(1, 16)) and walk.checked == 15
    assert torch.equal(flat.values, training._newest.values)
    assert [
        tuple((one.member, one.number) for one in commit.contributions) for commit in walk.commits.values()
    ] == (training.run.steps)


# What is refused


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Of two commits."""
    strategy = STRATEGIES["models"]
    model, optimizer = made()
    run = tweed.serve(model, optimizer, strategy, fewest=2)
    with members(*[lambda n=number: member(run.address, n, strategy) for number in range(2)]):
        run.serve(commits=2, log=tmp_path / "a.log")
    run.detach()
    return tmp_path / "a.log"


def wrong(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value) and type(raised.value) is error


def test_another_model_strategy_or_optimizer_is_named(log: Path) -> None:
    strategy = STRATEGIES["models"]
    wrong(StrategyError, "Cache", lambda: again(log, STRATEGIES["a rule"]))
    wrong(StrategyError, "has no hub", lambda: again(log, Strategy()))
    other, _ = make(0, hidden=41)
    wrong(
        UsageError,
        "[41, 3]",
        lambda: replay(log, other, torch.optim.SGD(other.parameters(), lr=1.0), strategy),
    )
    model, _ = make(0)
    two = torch.optim.SGD([{"params": [one]} for one in model.parameters()], lr=1.0)
    wrong(UsageError, "another optimizer", lambda: replay(log, model, two, strategy))


def test_what_after_had_changed_at_the_hub_is_missed_by_the_commit(tmp_path: Path) -> None:
    strategy = STRATEGIES["models"]
    model, optimizer = made()
    run = tweed.serve(model, optimizer, strategy, fewest=2)

    def slower(given: torch.optim.Optimizer) -> Callable[[int], None]:
        return lambda version: given.param_groups[0].update(lr=0.01 if version >= 2 else 0.02)

    with members(*[lambda n=number: member(run.address, n, strategy) for number in range(2)]):
        run.serve(commits=4, log=tmp_path / "a.log", after=slower(optimizer))
    run.detach()
    wrong(TweedError, "commit 3 of the log", lambda: again(tmp_path / "a.log", strategy))
    copy, other = made(9)
    replay(tmp_path / "a.log", copy, other, strategy, after=slower(other))
    assert equal(params(copy), params(model))


def test_any_byte_that_is_not_as_it_was_is_found_with_its_place(log: Path) -> None:
    strategy, whole = STRATEGIES["models"], log.read_bytes()
    for at in range(20, len(whole), len(whole) // 60):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        wrong(DataError, "is damaged at byte", lambda: again(log, strategy))


def test_a_log_that_ends_anywhere_has_all_whole_records(log: Path) -> None:
    strategy, whole = STRATEGIES["models"], log.read_bytes()
    began = len(whole)
    records = len(list(LoggedEvents(log)))
    for at in range(began - 1, began // 2, -(began // 30)):
        log.write_bytes(whole[:at])
        events = LoggedEvents(log)
        assert len(list(events)) < records
        assert 0 <= events.unfinished_bytes < at
        EventLog(log).append(Passed(1.0))  # behind the last whole one
        *_, last = LoggedEvents(log)
        assert last == Passed(1.0)
    log.write_bytes(whole[:300])
    wrong(DataError, "its first record is missing", lambda: again(log, strategy))


class Full:
    """A file on a disk with so much room."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self.room = file, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self._file.write(content[: self.room])
        self.room -= written
        return written


def test_a_record_for_which_there_is_no_room_is_taken_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "a.log")
    log.append(Passed(1.0))
    log._file = Full(log._file, 10)  # type: ignore[assignment]
    with pytest.raises(OSError, match=r"No space left.*the log is whole.*a\.log") as raised:
        log.append(Passed(2.0))
    assert raised.value.errno == errno.ENOSPC
    log._file.room = 1000  # type: ignore[attr-defined]
    log.append(Passed(3.0))
    assert list(LoggedEvents(tmp_path / "a.log")) == [Passed(1.0), Passed(3.0)]


def test_what_is_no_log_or_of_another_format_is_said(log: Path, tmp_path: Path) -> None:
    strategy, other = STRATEGIES["models"], tmp_path / "other"
    wrong(DataError, "cannot be read", lambda: again(tmp_path / "missing", strategy))
    other.write_text("something else\n")
    wrong(UsageError, "is not the log of a hub", lambda: again(other, strategy))
    wrong(UsageError, "is not the log of a hub", lambda: EventLog(other))
    assert other.read_text() == "something else\n"
    other.write_bytes(log.read_bytes().replace(b"log 4\n", b"log 1\n", 1))
    wrong(UsageError, "has format 1", lambda: again(other, strategy))
    open_one = EventLog(log)
    wrong(UsageError, "another process writes", lambda: EventLog(log))
    open_one.close()


def test_a_log_begins_with_its_hub_and_is_of_one_run(log: Path, tmp_path: Path) -> None:
    strategy = STRATEGIES["models"]
    model, optimizer = made(3)
    run = tweed.serve(model, optimizer, strategy, fewest=2)
    with members(*[lambda n=number: member(run.address, n, strategy) for number in range(2)]):
        run.serve(commits=1)
        wrong(
            UsageError,
            "the hub has served already",
            lambda: run.serve(commits=2, log=tmp_path / "b.log"),
        )
    run.detach()
    kept = run.state_dict()
    other = tweed.serve(model, optimizer, strategy)  # goes on from a checkpoint of another run
    other.load_state_dict(kept)
    other.serve(commits=1, log=log)
    before = len(log.read_bytes())
    with members(lambda: member(other.address, 0, strategy), lambda: member(other.address, 1, strategy)):
        other.serve(commits=2, log=log)
    other.detach()
    assert len(log.read_bytes()) > before
    wrong(DataError, "is not the one that it had", lambda: again(log, strategy))
