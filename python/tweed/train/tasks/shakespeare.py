"""Shakespeare: a transformer that predicts the next character: two layers, some 115,000 parameters.

A larger one has four layers and 1.8 million. Shapes: B batch, L characters, D width, H heads.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays
from tweed.train.tasks.base import Task, adamw


class Size(NamedTuple):
    """The size of a transformer: its width, attention heads and layers."""

    width: int
    heads: int
    layers: int


SMALL, LARGE = Size(64, 4, 2), Size(192, 6, 4)


class _Block(nn.Module):
    """Attention to earlier characters, then a perceptron, each added to its input."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self._heads = (3, size.heads, width // size.heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def _attend(self, x: Tensor) -> Tensor:
        split = self.qkv(x).unflatten(-1, self._heads).permute(2, 0, 3, 1, 4)  # [3, B, H, L, D/H]
        mixed = F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return joined

    def forward(self, x: Tensor) -> Tensor:  # [B, L, D] to the same
        x = x + self._attend(self.norms[0](x))
        deeper: Tensor = self.perceptron(self.norms[1](x))
        return x + deeper


class _Model(nn.Module):
    def __init__(self, size: Size, alphabet: int, length: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(alphabet, size.width)
        self.places = nn.Parameter(torch.empty(length, size.width))
        for table in (self.letters.weight, self.places):
            nn.init.normal_(table, std=0.02)
        blocks = [_Block(size) for _ in range(size.layers)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(size.width))
        self.scores = nn.Linear(size.width, alphabet)

    def forward(self, codes: Tensor) -> Tensor:  # [B, L] to [B, alphabet, L]
        x = self.letters(codes) + self.places[: codes.shape[1]]
        scores: Tensor = self.scores(self.blocks(x))
        return scores.transpose(1, 2)


def _model(size: Size, arrays: Arrays) -> nn.Module:
    return _Model(size, arrays.classes, arrays.train.x.shape[1])


def _inputs(x: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(x.astype(np.int64))


TASK, LARGE_TASK = (Task(partial(_model, size), _inputs, adamw) for size in (SMALL, LARGE))
