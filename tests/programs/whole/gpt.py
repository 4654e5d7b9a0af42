"""A GPT on letters: accumulation, clipping, cosine, decay by groups, in the manner of nanoGPT."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CONTEXT, LETTERS, WIDTH = 32, 65, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS, bias=False)
        self.head.weight = self.letters.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.letters(x) + self.places.weight)))


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(GPT())
    decayed = [param for param in model.parameters() if param.dim() > 1]
    others = [param for param in model.parameters() if param.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / 4 if step < 3 else 0.5 * (1 + math.cos(min(step, 100) / 32))
    )
    draw = torch.Generator().manual_seed(rank)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        for number in range(2):
            model.require_backward_grad_sync = number == 1
            text = torch.randint(LETTERS, (4, CONTEXT + 1), generator=draw)
            loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        return loss.detach()

    return step
