"""Rules over real ranks: they see whole gradients, and do without what is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import tweed
from tests.hooks.nets import batch, equal, make, on_each_backend, params, step
from tweed.aggregate import (
    Arrival,
    CentredClipping,
    Krum,
    Median,
    NearestNeighbourMixing,
    TrimmedMean,
    conclude,
)
from tweed.cadence import LocalSteps
from tweed.collective import Server
from tweed.compress import ErrorFeedback, Half, TopK
from tweed.errors import NonFinite
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

SIZE = 5
RULES = [Krum(2), NearestNeighbourMixing(Median(), 1), CentredClipping(0.5, 3)]


def alone(rule: Any, steps: int) -> list[Tensor]:
    """The model by a rule that sees whole gradients, all ranks' work in one process."""
    model, optimizer = make()
    state = rule.start()
    for number in range(steps):
        for rank in range(SIZE):
            model.zero_grad()
            model(batch(rank, number)).square().mean().backward()
            flat = torch.cat([param.grad.flatten() for param in model.parameters()])
            state = rule.handle(Arrival(flat, rank), state, float(number))
        update, _, state = conclude(rule, state, float(number))
        sizes = [param.numel() for param in model.parameters()]
        for param, piece in zip(model.parameters(), update.split(sizes), strict=True):
            param.grad = piece.view(param.shape)
        optimizer.step()
    return params(model)


def judged(rank: int, size: int, bucket_bytes: int) -> list[list[Tensor]]:
    found = []
    for rule in RULES:
        model, optimizer = make(0)
        run = tweed.attach(model, optimizer, Strategy(aggregate=rule), bucket_bytes=bucket_bytes)
        for number in range(4):
            step(model, optimizer, rank, number)
        run.detach()
        found.append(params(model))
    return found


@on_each_backend
@pytest.mark.parametrize("bucket_bytes", [1, 400, 2**20])
def test_a_rule_sees_whole_gradients_however_they_lie_in_buckets(backend: str, bucket_bytes: int) -> None:
    expected = [alone(rule, 4) for rule in RULES]
    for by_rule in run_ranks(judged, SIZE, bucket_bytes, backend=backend):
        for mine, true in zip(by_rule, expected, strict=True):
            for one, other in zip(mine, true, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


#: Each kind of exchange, codec and owner.
BROKEN = {
    "mean": Strategy(compress=ErrorFeedback(TopK(0.2))),
    "values": Strategy(aggregate=Median()),
    "sums": Strategy(compress=ErrorFeedback(Half()), aggregate=Krum(1)),
    "sparse": Strategy(compress=ErrorFeedback(TopK(0.2)), aggregate=TrimmedMean(1)),
    "server": Strategy(compress=ErrorFeedback(TopK(0.2)), aggregate=Krum(1), collective=Server(0)),
    "differences": Strategy("difference", LocalSteps(2), ErrorFeedback(TopK(0.2)), aggregate=Median()),
}


def with_nan(rank: int, size: int, broken: tuple[int, ...], names: list[str]) -> list[list[Tensor] | str]:
    """Trains while some ranks' data become NaN in the third step: models, or the error's words."""
    found: list[list[Tensor] | str] = []
    for name in names:
        model, optimizer = make(0)
        run = tweed.attach(model, optimizer, BROKEN[name])
        try:
            for number in range(0 if run.serves else 6):
                scale = math.nan if rank in broken and number == 2 else 1.0
                model(scale * batch(rank, number)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            if run.serves:
                run.serve(6)
            found.append(params(model))
        except NonFinite as error:
            found.append(str(error))
        run.detach()
    return found


@on_each_backend
def test_a_rule_does_without_a_rank_whose_numbers_are_not_finite(backend: str) -> None:
    by_rank = run_ranks(with_nan, SIZE, (3,), list(BROKEN)[1:], backend=backend)
    for at, name in enumerate(list(BROKEN)[1:]):
        models = [found[at] for found in by_rank]
        assert all(isinstance(model, list) for model in models), (name, models[0])
        assert all(equal(model, models[0]) for model in models), name
        assert all(bool(part.isfinite().all()) for part in models[3]), name


def test_what_most_ranks_have_broken_is_an_error_and_so_is_anything_under_a_mean() -> None:
    words = "NaN or infinity in what was to be exchanged"
    for found in run_ranks(with_nan, SIZE, (1, 2, 3), ["values", "sparse"], backend="tweed"):
        assert all(isinstance(one, str) and words in one for one in found)
    for [found] in run_ranks(with_nan, SIZE, (3,), ["mean"], backend="tweed"):
        assert isinstance(found, str) and "on rank 3" in found
