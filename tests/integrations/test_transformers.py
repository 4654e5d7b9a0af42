"""Transformers' Trainer: DDP by itself, and a strategy by `use`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integrations.ranks import in_ranks, needs, values

needs("transformers")


def trained(folder: Path, strategy: str | None) -> tuple[list[float], int]:
    """Parameters of a tiny GPT-2 after four steps of two batches each, and the exchanges."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    from tweed.integrations.transformers import use

    set_seed(0)
    config = GPT2Config(
        vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1, embd_pdrop=0, resid_pdrop=0, attn_pdrop=0
    )
    texts = torch.randint(16, (32, 8))
    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_steps=4, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    data: Any = [{"input_ids": text, "labels": text} for text in texts]
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data)
    attached = None if strategy is None else use(trainer, strategy)
    exchanges = []
    if attached is not None:
        end = attached.on_train_end
        attached.on_train_end = lambda *a, **k: (
            exchanges.append(attached.run.stats.exchanges),
            end(*a, **k),
        )[1]
    trainer.train()
    return values(trainer.model), exchanges[0] if exchanges else 0


def test_every_step_gives_what_ddp_gives(tmp_path: Path) -> None:
    alone, by_ddp = in_ranks(trained, tmp_path, None)
    first, second = in_ranks(trained, tmp_path, "every_step")
    assert alone[0] == by_ddp[0] and first[0] == second[0] == pytest.approx(alone[0], rel=1e-4, abs=1e-6)
    assert first[1] == 4  # of eight batches


def test_local_steps_end_with_one_model(tmp_path: Path) -> None:
    first, second = in_ranks(trained, tmp_path, "local_steps:3")
    assert first[0] == second[0]
    assert first[1] == 1
