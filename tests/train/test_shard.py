"""A worker's part of a task: its samples, its loss, its share of the test set."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tweed.train.shard import Shard, cosine, optimizer_step, set_lr


def test_workers_share_all_samples_and_a_server_has_none_of_its_own() -> None:
    shards = [Shard("digits", 16, worker, 3, "by_label") for worker in range(3)]
    samples = np.concatenate([shard.samples for shard in shards])
    assert sorted(samples) == list(range(len(shards[0].arrays.train)))
    assert np.array_equal(Shard("digits", 16, 3, 3, "by_label").samples, shards[2].samples)


def test_the_scores_of_all_ranks_are_those_of_one() -> None:
    torch.manual_seed(0)
    shard = Shard("digits", 16, 0, 1)
    model = shard.model()
    parts = [shard.scores(model, 359, rank, 2) for rank in range(2)]
    torch.testing.assert_close(sum(parts), shard.scores(model, 359))
    assert float(shard.scores(model, 300)[2]) == 300


def test_a_step_moves_the_model_and_a_server_takes_none() -> None:
    torch.manual_seed(0)
    shard = Shard("digits", 16, 0, 1)
    model = shard.model()
    optimizer = shard.task.optimizer(model.parameters(), 0.1)
    set_lr(optimizer, 0.05)
    losses = [optimizer_step(optimizer, lambda: shard.loss(model, shard.batch(0))) for _ in range(5)]
    assert losses[4] is not None and losses[0] is not None and losses[4] < losses[0]
    assert all(param.grad is None for param in model.parameters())
    assert optimizer_step(optimizer, None) is None


def test_the_rate_falls_along_half_a_cosine() -> None:
    assert [cosine(0.1, step, 100) for step in (0, 50, 100, 120)] == pytest.approx([0.1, 0.05, 0.0, 0.0])
