"""`attach` with every named strategy, of a model on the device.

Gradients are sums of products of small binary fractions, whatever the parameters are, so each device finds
the same bits, and codecs that choose the largest values choose the same ones.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tweed.recipes import RECIPES

#: Settings that suit two ranks and a few steps; the other strategies have their defaults.
SETTINGS = {
    "local_steps": "local_steps:3",
    "local_top_k": "local_top_k:3",
    "local_sign": "local_sign:3",
    "cser": "cser(8, 4, 3)",
    "cser_pl": "cser_pl(4, 3)",
    "ef_sgd": "ef_sgd:4",
    "csea": "csea:4",
    "qsparse_local": "qsparse_local(4, 3)",
    "diloco": "diloco:3",
    "lag": "lag(0.125, 2)",
    "ofedqit": "ofedqit:0.5",
    "saef": "saef(0.1, 1.0, 4)",
    "teasq": "teasq(0, 3, 1)",
    "mlfabric": "mlfabric",
    "zeno_ps": "zeno_ps(0, 3, 0.125)",
}
CASES = tuple(SETTINGS.get(make.__name__, make.__name__) for make in RECIPES)
QUICK = ("every_step", "top_k", "factors", "powersgd", "auto", "teasq(0, 3, 1)")
#: What they choose goes by times, so what they find is not the same twice; all ranks have one finite model.
TIMED = ("auto", "ordered_gradient")
STEPS, LR = 9, 0.125


def check(case: str, rank: int, size: int, device: torch.device) -> list[Tensor]:
    """The parameters after some steps; nothing of strategies that go by times."""
    torch.manual_seed(0)
    model = nn.Linear(48, 40).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    run = tweed.attach(model, optimizer, case)
    hub = run.serves and run.strategy.hub is not None
    if hub:
        run.serve(trusted=lambda number: _loss(model, 1, number, device))
    for number in range(0 if hub else STEPS):
        if not run.serves:
            _loss(model, rank, number, device).backward()
        optimizer.step()
        optimizer.zero_grad()
    run.detach()
    params = [param.detach() for param in model.parameters()]
    if case in TIMED:
        _same_on_all(params)
        return []
    return params


def _same_on_all(params: list[Tensor]) -> None:
    mine = torch.cat([param.flatten() for param in params])
    first = mine.clone()
    dist.broadcast(first, 0)
    if not (torch.equal(first, mine) and mine.isfinite().all()):
        raise ValueError(f"{int((first != mine).sum())} of {mine.numel()} values are others than at rank 0")


def _loss(model: nn.Module, rank: int, number: int, device: torch.device) -> Tensor:
    draw = torch.Generator().manual_seed(100 * rank + number)
    x, y = (torch.randint(-32, 33, (6, width), generator=draw).to(device) / 64 for width in (48, 40))
    return (model(x) * y).sum()
