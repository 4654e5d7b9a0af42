"""Target propagation on ranks: data parallel, with bytes on the link, and as a pipeline of two stages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import tweed
from tweed.compress import Identity
from tweed.exchange.stages import Cut
from tweed.report.notes import Notes
from tweed.systems.target_propagation.measured import (
    FEEDBACK_STEPS,
    Contender,
    Setting,
    Training,
    pictures,
    training,
)
from tweed.testbed import Network, run_ranks, sent_bytes
from tweed.torch import stage_link

NETWORK = Network.parse("rate=1gbit")
_RATE, _STEPS = 0.1, 5


def data_parallel(notes: Notes, setting: Setting, contenders: dict[str, Contender], ranks: int) -> None:
    """Lines of kind "bytes": what rank 0 sends per step, headers included, beside the weights' own bytes."""
    for key, contender in contenders.items():
        if notes.has(kind="bytes", contender=key):
            continue
        notes.log(f"{key}, on {ranks} ranks")
        found = run_ranks(_attached, ranks, setting, contender, backend="tweed", network=NETWORK, timeout=120)
        notes.add({"kind": "bytes", "contender": key, "ranks": ranks, **found[0]})


def _attached(rank: int, size: int, setting: Setting, contender: Contender) -> dict[str, Any]:
    torch.set_num_threads(1)
    (x, y), _ = pictures(setting.data, setting.scale)
    made = training(setting, contender, _RATE, 0)
    optimizers = [one for one in (made.weights, made.feedback) if one is not None]
    runs = [tweed.attach(nn.ParameterList(one.param_groups[0]["params"]), one) for one in optimizers]
    own, before = slice(rank * setting.batch, (rank + 1) * setting.batch), 0
    for step in range(_STEPS + 1):
        if step == 1:
            before = sent_bytes() or 0
        made.step(x[own], y[own])
    sent = (sent_bytes() or 0) - before
    for run in runs:
        run.detach()
    weights = sum(4 * param.numel() for param in made.weights.param_groups[0]["params"])
    back = 0 if made.feedback is None else sum(4 * p.numel() for p in made.feedback.param_groups[0]["params"])
    return {"sent": sent / _STEPS, "gradients": weights + FEEDBACK_STEPS * back, "weights": weights}


def pipeline(notes: Notes, setting: Setting, at: int) -> None:
    """A line of kind "pipeline": how far the weights of two stages, on a rank each, are from one process'."""
    if notes.has(kind="pipeline"):
        return
    notes.log("a pipeline of two stages")
    stages = run_ranks(_stage, 2, setting, at, backend="tweed", timeout=120)
    alone = training(setting, Contender(), _RATE, 0)
    (x, y), _ = pictures(setting.data, setting.scale)
    for step in range(_STEPS):
        alone.step(*_batch(x, y, setting, step))
    wanted = [param.detach() for param in alone.network.parameters()]
    off = max(
        float((one - two).abs().max()) for one, two in zip([*stages[0], *stages[1]], wanted, strict=True)
    )
    notes.add({"kind": "pipeline", "off": off, "steps": _STEPS})


def _stage(rank: int, size: int, setting: Setting, at: int) -> list[Tensor]:
    torch.set_num_threads(1)
    (x, y), _ = pictures(setting.data, setting.scale)
    made: Training = training(setting, Contender(), _RATE, 0)
    own = made.network[:at] if rank == 0 else made.network[at:]
    link = stage_link(1 - rank, Cut(Identity(), Identity()))
    for step in range(_STEPS):
        features, classes = _batch(x, y, setting, step)
        made.weights.zero_grad()
        if rank == 0:
            link.send(own(features)).backward()  # type: ignore[no-untyped-call]
        else:
            nn.functional.cross_entropy(own(link.receive()), classes).backward()  # type: ignore[no-untyped-call]
        made.weights.step()
    return [param.detach() for param in own.parameters()]


def _batch(x: Tensor, y: Tensor, setting: Setting, step: int) -> tuple[Tensor, Tensor]:
    which = slice(step * setting.batch, (step + 1) * setting.batch)
    return x[which], y[which]
