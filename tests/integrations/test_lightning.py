"""Lightning's Trainer: DDP over tweed, and a strategy of tweed's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integrations.ranks import in_ranks, needs, values

needs("lightning")


def trained(folder: Path, exchange: str | None, epochs: int | None = None) -> tuple[list[float], int]:
    """Parameters after one epoch, four steps of two batches each, and the exchanges; or after so many, from
    the checkpoint that is there."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from tweed.integrations.lightning import KeepExchange, TweedStrategy

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(8, 1)
            self.exchanges = 0

        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            x = batch[0]
            return (self.layer(x) - x.sum(1, keepdim=True)).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def on_train_batch_end(self, *_: Any) -> None:
            run = self.trainer.strategy.run
            self.exchanges = 0 if run is None else run.stats.exchanges

    net = Net()
    data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)))
    quiet: Any = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
    quiet |= {} if epochs else {"logger": False}
    keeps = None if epochs is None else [KeepExchange(), ModelCheckpoint(folder, save_last=True)]
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy=TweedStrategy(exchange), max_epochs=epochs or 1,
        accumulate_grad_batches=2, default_root_dir=folder, enable_checkpointing=epochs is not None,
        callbacks=keeps, **quiet,
    )  # fmt: skip
    last = folder / "last.ckpt"
    trainer.fit(net, torch.utils.data.DataLoader(data, 4), ckpt_path=last if last.exists() else None)
    if epochs:
        assert trainer.logged_metrics["tweed/exchanges"] == net.exchanges
    return values(net), net.exchanges


def test_every_step_gives_what_ddp_gives(tmp_path: Path) -> None:
    by_ddp, _ = in_ranks(trained, tmp_path, None)
    first, second = in_ranks(trained, tmp_path, "every_step")
    assert first[0] == second[0] == pytest.approx(by_ddp[0])
    assert first[1] == 4  # of eight batches


def test_local_steps_end_with_one_model(tmp_path: Path) -> None:
    first, second = in_ranks(trained, tmp_path, "local_steps:3")
    assert first[0] == second[0]
    assert first[1] == 1


@pytest.mark.parametrize("exchange", ["top_k:0.2", "local_top_k(every=3)"])
def test_a_run_goes_on_with_what_ranks_had_yet_to_send(exchange: str, tmp_path: Path) -> None:
    first, second = in_ranks(trained, tmp_path, exchange, 1)
    assert first[0] == second[0]
    resumed = in_ranks(trained, tmp_path, exchange, 2)
    assert resumed == in_ranks(trained, tmp_path / "whole", exchange, 2)
