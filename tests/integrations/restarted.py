"""What torchrun starts, and starts again when rank 1 has been killed: `restarted.py WAY FOLDER`.

Each way trains a line on the same samples at both ranks, keeps a checkpoint of each step, and leaves its
parameters in the folder at the end. Those are then what one process alone has.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

STEPS, KILLED_AT = 6, 3


def begun() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Momentum, so that who begins anew ends elsewhere."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss(model: torch.nn.Module) -> torch.Tensor:
    x = torch.linspace(-1, 1, 64).view(8, 8)
    error: torch.Tensor = model(x) - x.sum(1, keepdim=True)
    return error.square().mean()


def alone() -> list[float]:
    """Parameters of one process, without restarts."""
    model, optimizer = begun()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).tolist()


def may_die(step: int, folder: Path) -> None:
    """Rank 1, once, when the checkpoint of the steps before is there."""
    if os.environ["RANK"] == "1" and step == KILLED_AT and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def attach(folder: Path) -> torch.nn.Module:
    import tweed

    dist.init_process_group("tweed")
    model, optimizer = begun()
    kept, done = folder / "kept", 0
    with tweed.attach(model, optimizer) as run:
        if kept.exists():
            done, weights, moments, state = torch.load(kept)
            model.load_state_dict(weights)
            optimizer.load_state_dict(moments)
            run.load_state_dict(state)
        for step in range(done, STEPS):
            may_die(step, folder)
            optimizer.zero_grad()
            loss(model).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if dist.get_rank() == 0:
                state = run.state_dict()
                torch.save((step + 1, model.state_dict(), optimizer.state_dict(), state), folder / "draft")
                (folder / "draft").rename(kept)
            dist.barrier()
    return model


def accelerate(folder: Path) -> torch.nn.Module:
    from accelerate import Accelerator

    dist.init_process_group("tweed")
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*begun())
    steps = sorted(folder.glob("step-*"))
    if steps:
        accelerator.load_state(str(steps[-1]))
    for step in range(len(steps), STEPS):
        may_die(step, folder)
        optimizer.zero_grad()
        accelerator.backward(loss(model))
        optimizer.step()
        accelerator.save_state(str(folder / f"step-{step}"))
        accelerator.wait_for_everyone()
    return model


def lightning(folder: Path) -> torch.nn.Module:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from tweed.integrations.lightning import TweedStrategy

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.made = begun()

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            may_die(self.current_epoch, folder)
            return loss(self.model)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.made

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(1, 1)))
    quiet: Any = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy=TweedStrategy(), max_epochs=STEPS,
        use_distributed_sampler=False, callbacks=[ModelCheckpoint(folder, save_last=True)], **quiet,
    )  # fmt: skip
    net, last = Net(), folder / "last.ckpt"
    trainer.fit(net, data, ckpt_path=last if last.exists() else None)
    return net.model


if __name__ == "__main__":
    place = Path(sys.argv[2])
    trained = globals()[sys.argv[1]](place)
    flat = torch.nn.utils.parameters_to_vector(trained.parameters())
    torch.save(flat.detach(), place / f"end-{os.environ['RANK']}")
