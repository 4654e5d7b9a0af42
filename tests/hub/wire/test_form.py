"""What a member says of its contribution is what others find."""

from __future__ import annotations

import pytest
import torch

from tweed.collective import Hub
from tweed.compress import (
    Direct,
    ErrorFeedback,
    Half,
    LocalResidual,
    Quantise,
    RandomBlocks,
    Sign,
    Spec,
    TopK,
)
from tweed.hub.wire.form import ContributionForm
from tweed.strategy import Strategy

SPEC = Spec(((30, 20), (17,)))


@pytest.mark.parametrize(
    "memory",
    [
        None,
        Direct(Half()),
        Direct(Quantise(2)),
        Direct(Sign()),
        ErrorFeedback(TopK(0.1)),
        LocalResidual(RandomBlocks(4)),
    ],
    ids=repr,
)
def test_the_length_that_is_offered_is_that_of_what_is_decoded(memory: object) -> None:
    strategy = Strategy("difference", compress=memory, collective=Hub(0))  # type: ignore[arg-type]
    worker, hub = ContributionForm(strategy, SPEC, 0), ContributionForm(strategy, SPEC, 0)
    generator = torch.Generator().manual_seed(1)
    for number in range(1, 4):
        offer, data = worker.offer(torch.randn(SPEC.numel, generator=generator), number)
        norm = float(hub.decode(data, number).norm())
        assert offer.norm == pytest.approx(norm, rel=1e-5)
        worker.over(counted=True)
