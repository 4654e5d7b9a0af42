"""Steps that wait for whoever reads a parameter: the numbers of `every_step`, bit for bit."""

from __future__ import annotations

import copy
import logging
import os
import signal
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

import tweed
from tests.hooks.nets import batch, equal, params
from tweed.errors import PeerLost
from tweed.hooks import deferred_steps
from tweed.hooks.run import Run
from tweed.testbed import Ranks, Said, run_ranks, say

STEPS = 5


class Shared(nn.Module):
    """A layer that is called twice, one that shares its weight, one of two by turns, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.twice = nn.Linear(3, 4), nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.twice.weight
        self.turns = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.never = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = torch.tanh(self.inlet(x))
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        return self.tied(self.turns[self.calls % 2](x))


class Sequence(nn.Module):
    """Layers that hand parameters to functions themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(3, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.recurrent(x[:, None, :].expand(-1, 3, -1))
        return self.norm(self.attention(x, x, x)[0])


class Checkpointed(nn.Module):
    """Layers that run again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, torch.tanh(x), use_reentrant=False)
        return x


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 2))


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@dataclass
class Loop:
    """What a training loop has in its hands."""

    rank: int
    model: nn.Module
    optimizer: optim.Optimizer
    run: Run
    seen: list[Any] = field(default_factory=list)
    deferred: int = 0  # steps after which something waits

    def loss(self, number: int) -> Tensor:
        loss = self.model(batch(self.rank, number)).square().mean()
        self.seen.append(loss.item())
        return loss

    def step(self) -> None:
        self.optimizer.step()
        gradients: Any = self.run._exchange
        *pending, _ = getattr(gradients, "pending", [None])  # without buffers
        self.deferred += any(one.under_way for one in pending)

    def simple(self, number: int) -> None:
        self.loss(number).backward()
        self.step()
        self.optimizer.zero_grad()


def clips(loop: Loop, number: int) -> None:
    loop.loss(number).backward()
    loop.seen.append(nn.utils.clip_grad_norm_(loop.model.parameters(), 0.1).item())
    loop.step()
    loop.optimizer.zero_grad()


def clears_before(loop: Loop, number: int) -> None:
    loop.optimizer.zero_grad(set_to_none=False)
    loop.loss(number).backward()
    loop.step()


def accumulates(loop: Loop, number: int) -> None:
    for part in range(3):
        with loop.run.no_sync() if part < 2 else nullcontext():
            loop.loss(3 * number + part).backward()
    loop.step()
    loop.optimizer.zero_grad()


def exchanges_twice(loop: Loop, number: int) -> None:
    first, second = loop.loss(2 * number), loop.loss(2 * number + 1)
    first.backward()
    second.backward()
    loop.step()
    loop.optimizer.zero_grad()


def steps_without_a_pass(loop: Loop, number: int) -> None:
    with loop.run.no_sync():
        loop.loss(number).backward()
    loop.step()
    if number % 2:
        loop.step()
    loop.optimizer.zero_grad()


def skips(loop: Loop, number: int) -> None:
    loop.loss(number).backward()
    if number != 2:
        loop.step()
    loop.optimizer.zero_grad()


def looks(loop: Loop, number: int) -> None:
    loop.simple(number)
    loop.model.eval()
    with torch.no_grad():
        loop.seen.append(loop.model(batch(0, 99)).tolist())
    loop.model.train()
    loop.seen.append([param.tolist() for param in copy.deepcopy(loop.model).parameters()])


def stores(loop: Loop, number: int) -> None:
    loop.simple(number)
    state = copy.deepcopy([loop.optimizer.state_dict(), loop.model.state_dict(), loop.run.state_dict()])
    if number == 2:
        loop.simple(77)
        for part, kept in zip((loop.optimizer, loop.model, loop.run), state, strict=True):
            part.load_state_dict(kept)


def moves(loop: Loop, number: int) -> None:
    loop.simple(number)
    with torch.no_grad():
        for param in loop.model.parameters():
            param.mul_(0.9)
        for param in loop.model.parameters():
            param.data = param.data.clone()


def schedules(loop: Loop, number: int) -> None:
    loop.simple(number)
    for group in loop.optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].mul_(0.5)
        else:
            group["lr"] *= 0.5


def scales(loop: Loop, number: int) -> None:
    scaler = loop.run.__dict__.setdefault("scaler", torch.amp.GradScaler("cpu", init_scale=8.0))
    loss = loop.loss(number) * (float("inf") if number == 2 else 1)
    scaler.scale(loss).backward()
    scaler.step(loop.optimizer)
    scaler.update()
    loop.optimizer.zero_grad()


def closes(loop: Loop, number: int) -> None:
    def closure() -> float:
        loop.optimizer.zero_grad()
        loss = loop.loss(number)
        loss.backward()
        return loss.item()

    loop.optimizer.step(closure)


@dataclass(frozen=True)
class Case:
    """What is trained, by which optimizer, how; whether steps are deferred, or why they are not."""

    net: Callable[[], nn.Module] = plain
    optimizer: Callable[[nn.Module], optim.Optimizer] = sgd
    loop: Callable[[Loop, int], None] = Loop.simple
    at_once: str = ""
    bucket_bytes: int = 60


def by(kind: Any, **settings: Any) -> Callable[[nn.Module], optim.Optimizer]:
    return lambda model: kind(model.parameters(), **{"lr": 0.05, **settings})


def in_groups(model: nn.Module) -> optim.Optimizer:
    one, *others = model.parameters()
    return optim.AdamW([{"params": [one], "lr": torch.tensor(0.1)}, {"params": others, "weight_decay": 0.1}])


class Foreign(optim.SGD):
    """An optimizer of somebody else."""


def hooked(model: nn.Module) -> optim.Optimizer:
    made = sgd(model)
    made.register_step_post_hook(lambda *args: None)
    return made


def scheduled(model: nn.Module) -> optim.Optimizer:
    made = sgd(model)
    made.scheduler = optim.lr_scheduler.OneCycleLR(made, 0.2, total_steps=2 * STEPS)  # type: ignore[attr-defined]
    return made


def follows_a_schedule(loop: Loop, number: int) -> None:
    scheduler: Any = loop.optimizer.scheduler  # type: ignore[attr-defined]
    loop.simple(number)
    scheduler.step()
    loop.seen.append(scheduler.get_last_lr())


def of_own_class() -> nn.Module:
    model = plain()
    model[0].weight = Own(model[0].weight.detach())  # type: ignore[index,union-attr]
    return model


def scripted() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):
        return nn.Sequential(torch.jit.script(nn.Linear(3, 4)), nn.Linear(4, 2))  # type: ignore[no-untyped-call]


def over_one_memory() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].weight.data[:2] = 0
    model[1].weight.data = model[0].weight.data[:2]
    return model


def differentiates_by_functions(loop: Loop, number: int) -> None:
    """`torch.func` takes parameters, which is no operation that they could hear of."""
    loop.simple(number)
    given = dict(loop.model.named_parameters())

    def loss(params: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(loop.model, params, batch(loop.rank, number)).square().mean()

    loop.seen.append({name: one.tolist() for name, one in torch.func.grad(loss)(given).items()})


def looks_at_a_part(loop: Loop, number: int) -> None:
    loop.simple(number)
    loop.model.eval()
    with torch.no_grad():
        x = batch(loop.rank, number)[:, None, :].expand(-1, 3, -1)
        loop.seen.append(loop.model.layer(x.repeat(1, 1, 2)[..., :4]).tolist())  # type: ignore[operator]
    loop.model.train()


def steps_with_gradients_of_its_own(loop: Loop, number: int) -> None:
    loop.loss(number).backward()
    own = torch.ones_like(next(loop.model.parameters()))
    next(loop.model.parameters()).grad = own
    loop.step()
    own.zero_()
    loop.optimizer.zero_grad()


class Encoder(nn.Module):
    """A layer whose kernel without gradients is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(3, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.inlet(x)[:, None, :])


class Own(nn.Parameter):
    """A parameter of the program's own class."""


CASES = {
    "plain": Case(),
    "one bucket": Case(bucket_bytes=2**20),
    "a bucket per parameter": Case(bucket_bytes=1),
    "Adam": Case(optimizer=by(optim.Adam, weight_decay=0.1)),
    "AdamW": Case(optimizer=by(optim.AdamW, amsgrad=True)),
    "RMSprop": Case(optimizer=by(optim.RMSprop)),
    "Adagrad": Case(optimizer=by(optim.Adagrad)),
    "fused": Case(optimizer=by(optim.AdamW, fused=True)),
    "foreach": Case(optimizer=by(optim.SGD, momentum=0.9, foreach=True)),
    "groups": Case(optimizer=in_groups),
    "shared, never and by turns": Case(Shared, by(optim.AdamW, weight_decay=0.1)),
    "layers with functions": Case(Sequence),
    "checkpoints": Case(Checkpointed),
    "a schedule": Case(loop=schedules),
    "a schedule of tensors": Case(optimizer=in_groups, loop=schedules),
    "a scheduler of torch's": Case(optimizer=scheduled, loop=follows_a_schedule),
    "clears before": Case(loop=clears_before),
    "clears before, shared": Case(Shared, loop=clears_before),
    "accumulates": Case(loop=accumulates),
    "accumulates, shared": Case(Shared, loop=accumulates),
    "exchanges twice": Case(Shared, loop=exchanges_twice),
    "steps without a pass": Case(loop=steps_without_a_pass),
    "skips": Case(loop=skips),
    "looks": Case(loop=looks),
    "looks at layers with functions": Case(Sequence, loop=looks),
    "stores": Case(optimizer=by(optim.Adam), loop=stores),
    "moves": Case(loop=moves),
    "looks at a part": Case(Encoder, loop=looks_at_a_part),
    "gradients by functions": Case(Sequence, loop=differentiates_by_functions),
    "gradients of its own": Case(bucket_bytes=1, loop=steps_with_gradients_of_its_own),
    "over one memory": Case(over_one_memory, at_once="parameters share memory"),
    "clips": Case(loop=clips, at_once=" "),  # all gradients have been read
    "a scaler": Case(loop=scales, at_once=" "),
    "a fused optimizer and a scaler": Case(
        optimizer=by(optim.SGD, fused=True), loop=scales, at_once="a gradient scaler lets the fused"
    ),
    "a closure": Case(loop=closes, at_once="a closure runs"),
    "LBFGS": Case(optimizer=by(optim.LBFGS), loop=closes, at_once="a closure runs"),
    "foreign": Case(optimizer=by(Foreign), at_once="Foreign is none of torch's"),
    "a hook of the program": Case(optimizer=hooked, at_once="hooks of the program"),
    "a class of its own": Case(of_own_class, at_once="tensors of class Own"),
    "scripted in part": Case(scripted, at_once="a scripted module"),
    "compiled": Case(lambda: torch.compile(plain(), backend="eager"), at_once="a compiled module"),  # type: ignore[arg-type,return-value]
}


class Heard(logging.Handler):
    """The lines that tweed says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def train(case: Case, rank: int, strategy: str) -> tuple[list[Tensor], list[Any], int]:
    """Parameters, buffers and states at the end; what the loop has seen; how many steps were deferred."""
    torch.manual_seed(0)
    model = case.net()
    optimizer = case.optimizer(model)
    with tweed.attach(model, optimizer, strategy, bucket_bytes=case.bucket_bytes) as run:
        loop = Loop(rank, model, optimizer, run)
        for number in range(STEPS):
            case.loop(loop, number)
    state = optimizer.state_dict()["state"]
    values = [value for key in sorted(state) for value in state[key].values() if isinstance(value, Tensor)]
    return [*params(model), *model.buffers(), *values], loop.seen, loop.deferred


def compare(rank: int, size: int, strategy: str) -> dict[str, str]:
    """What is wrong, by case."""
    wrong, heard = {}, Heard()
    logging.getLogger("tweed").addHandler(heard)
    for name, case in CASES.items():
        true, true_seen, none = train(case, rank, "every_step")
        deferred_steps.say_at_once.cache_clear()
        heard.lines.clear()
        mine, seen, deferred = train(case, rank, strategy)
        said = [line for line in heard.lines if "at once" in line]
        if len(true) != len(mine) or not equal(true, mine):
            wrong[name] = "other values at the end"
        elif seen != true_seen:
            wrong[name] = f"{seen} was seen, and under every_step {true_seen}"
        elif bool(deferred) == bool(case.at_once) or none:
            wrong[name] = f"{deferred} steps were deferred"
        elif len(said) != bool(case.at_once.strip()) or not all(case.at_once in line for line in said):
            wrong[name] = f"said {said}"
    return wrong


#: Each in small pieces, so that most buckets have several.
STRATEGIES = (
    ("urgent", "gloo"),
    ("urgent", "tweed"),
    ("p3(16)", "gloo"),
    ("bytescheduler(64, 32, False)", "tweed"),
    ("prophet(32)", "tweed"),
)


@pytest.fixture(scope="module", params=STRATEGIES, ids=" on ".join)
def wrong_by_rank(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    strategy, backend = request.param
    found: list[dict[str, str]] = run_ranks(compare, 2, strategy, backend=backend, timeout=120)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_every_step(wrong_by_rank: list[dict[str, str]], case: str) -> None:
    assert [wrong.get(case) for wrong in wrong_by_rank] == [None, None]


def loses_rank_1(rank: int, size: int) -> None:
    model = plain()
    optimizer = sgd(model)
    run = tweed.attach(model, optimizer, "urgent", bucket_bytes=60)
    loop = Loop(rank, model, optimizer, run)
    loop.simple(0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        loop.simple(1)
        loop.loss(2)
    except PeerLost as lost:
        run.detach()
        say((str(lost), {type(param) for param in model.parameters()}))


def test_a_lost_rank_is_named_at_whoever_reads_what_it_would_have_sent() -> None:
    with Ranks(loses_rank_1, 2, backend="tweed") as ranks:
        events = []
        while ranks.running():
            events += ranks.poll()
    [(text, kinds)] = [event.value for event in events if isinstance(event, Said)]
    assert "rank 1" in text and kinds == {nn.Parameter}


def ends_without_finish(rank: int, size: int) -> bool:
    true, _, _ = train(Case(), rank, "every_step")
    torch.manual_seed(0)
    model = plain()
    optimizer = sgd(model)
    run = tweed.attach(model, optimizer, "urgent", bucket_bytes=60)
    loop = Loop(rank, model, optimizer, run)
    for number in range(STEPS):
        loop.simple(number)
    run.detach()
    hooks = [*model._forward_pre_hooks, *optimizer._optimizer_step_pre_hooks]
    kinds = {type(one) for one in (*model.parameters(), *model.buffers())}
    mine = params(model)
    return equal(mine, true[: len(mine)]) and not hooks and kinds == {nn.Parameter, Tensor}


def test_detach_takes_what_was_deferred_and_leaves_no_hook() -> None:
    assert run_ranks(ends_without_finish, 2, backend="gloo") == [True, True]


def reads_of(rank: int, size: int) -> tuple[list[bool], list[bool], list[bool]]:
    """Which buckets wait after a step, after the first layer was used, and after the last one was."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = sgd(model)
    run = tweed.attach(model, optimizer, "urgent", bucket_bytes=1)
    Loop(rank, model, optimizer, run).simple(0)
    pending: Any = run._exchange
    found = []
    for used in (None, 0, 3):
        if used is not None:
            model[used](torch.ones(1, 3 if used == 0 else 4))
        found.append([one.under_way for one in pending.pending])
    run.detach()
    return tuple(found)  # type: ignore[return-value]


def test_a_layer_waits_for_its_own_buckets_and_buffers_for_theirs() -> None:
    waits, first, last = run_ranks(reads_of, 2, backend="gloo")[0]
    assert waits == [True] * 9  # two parameters in each of four layers, the last first; then buffers
    assert first == [True] * 6 + [False] * 2 + [True]
    assert last == [False] * 2 + [True] * 4 + [False] * 2 + [True]


def several(rank: int, size: int) -> list[Tensor]:
    """How far two optimizers, of which one skips a step, come apart from `every_step`."""
    found = []
    for strategy in ("every_step", "urgent"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizers = [sgd(model[0]), optim.AdamW(model[2].parameters(), lr=0.05)]
        with tweed.attach(model, optimizers, strategy, bucket_bytes=60):
            for number in range(STEPS):
                model(batch(rank, number)).square().mean().backward()
                for each in optimizers[: 1 if number == 2 else 2]:
                    each.step()
                    each.zero_grad()
        found.append(params(model))
    return [one - other for one, other in zip(*found, strict=True)]


def test_several_optimizers_step_as_under_every_step() -> None:
    assert not any(diff.any() for diffs in run_ranks(several, 2, backend="gloo") for diff in diffs)


def raises_once(rank: int, size: int) -> list[bool]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = optim.Adam(model.parameters())
    with tweed.attach(model, optimizer, "urgent", bucket_bytes=1):
        model(batch(rank, 0)).square().mean().backward()
        last = model[1].bias
        last.grad = torch.sparse_coo_tensor([[0]], [1.0], (2,))
        with pytest.raises(RuntimeError, match="sparse"):
            optimizer.step()
        optimizer.zero_grad()
        model(batch(rank, 1)).square().mean().backward()
        given = [param.grad.clone() for param in model.parameters() if param.grad is not None]
        before = params(model)
        optimizer.step()
        left = [param.grad for param in model.parameters()]
        kept = [one is not None and torch.equal(one, true) for one, true in zip(left, given, strict=True)]
        return [*kept, *(not torch.equal(*pair) for pair in zip(before, params(model), strict=True))]


def test_a_step_that_raises_leaves_nothing_to_the_next_one() -> None:
    assert run_ranks(raises_once, 2, backend="tweed") == [[True] * 8] * 2
