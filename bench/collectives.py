"""Collectives on one host: Gloo, OpenMPI, tweed, and tweed with tensors in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from bench import memory, mpi
from bench.run import Measurement, Row, timings
from tweed.systems.harness.benchmark import LOCKSTEP_BYTES, Config, Contender, benchmark

KB, MB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Scope:
    """Which cases to measure, and how long each."""

    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    middle: tuple[int, int]
    config: Config


FULL = Scope((2, 4, 8), (4 * KB, 64 * KB, 1 * MB, 25 * MB, 100 * MB), (4, 25 * MB), Config(10, 1.0, 10, 4000))
QUICK = Scope((2, 4), (4 * KB, 25 * MB), (4, 4 * MB), Config(4, 0.3, 4, 400))


def all_reduces(scope: Scope) -> Iterator[Row]:
    """Every number of ranks and size; at the largest size, what memory can do as well."""
    for ranks in scope.ranks:
        yield mpi.about(ranks)
        yield from timings(_all_reduce, ranks, scope.sizes, scope.config, launch=mpi.launch)


def others(scope: Scope) -> Iterator[Row]:
    """The other collectives with tensors, at one size."""
    ranks, size_bytes = scope.middle
    yield from timings(_others, ranks, size_bytes, scope.config)


def over_tcp(scope: Scope) -> Iterator[Row]:
    """All-reduce with every byte through a socket of the loopback device."""
    ranks, size_bytes = scope.middle
    yield from timings(_over_tcp, ranks, size_bytes, scope.config)


def _all_reduce(rank: int, ranks: int, sizes: tuple[int, ...], config: Config) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    return [one for size in sizes for one in _all_reduce_of(size, gloo, config, size == max(sizes))]


def _all_reduce_of(size_bytes: int, gloo: Any, config: Config, with_memory: bool) -> Iterator[Measurement]:
    plain, shared = _plain(size_bytes), _shared(size_bytes)
    contenders = [
        Contender("gloo", lambda: dist.all_reduce(plain, group=gloo)),
        Contender("openmpi", mpi.all_reduce(plain)),
        Contender("tweed", lambda: dist.all_reduce(plain)),
        Contender("tweed.empty", lambda: dist.all_reduce(shared)),
    ]
    probes = memory.probes(size_bytes) if with_memory else []
    measured = benchmark([*contenders, *probes], config, lockstep=size_bytes >= LOCKSTEP_BYTES)
    yield Measurement("all_reduce", size_bytes, {one.side: measured[one.side] for one in contenders})
    if probes:
        yield Measurement("memory", size_bytes, {one.side: measured[one.side] for one in probes})


def _others(rank: int, ranks: int, size_bytes: int, config: Config) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    measurements = []
    for name, call in _OTHERS.items():
        plain, shared = _pair(_plain, size_bytes, ranks), _pair(_shared, size_bytes, ranks)
        contenders = [
            _contender("gloo", call, plain, gloo),
            _contender("tweed", call, plain, None),
            _contender("tweed.empty", call, shared, None),
        ]
        measurements.append(Measurement(name, size_bytes, benchmark(contenders, config, lockstep=True)))
    return measurements


def _over_tcp(rank: int, ranks: int, size_bytes: int, config: Config) -> list[Measurement]:
    gloo = dist.new_group(backend="gloo")
    tcp = dist.new_group(backend="tweed", pg_options=tweed.Options(transport="tcp"))
    plain = _plain(size_bytes)
    contenders = [
        Contender("gloo", lambda: dist.all_reduce(plain, group=gloo)),
        Contender("tweed", lambda: dist.all_reduce(plain, group=tcp)),
    ]
    return [Measurement("all_reduce over TCP", size_bytes, benchmark(contenders, config, lockstep=True))]


#: Calls on a whole buffer and a part of it, `[numel]` and `[numel / ranks]`, and a second whole one.
_Tensors = tuple[Tensor, Tensor, Tensor]
_OTHERS: dict[str, Callable[..., object]] = {
    "reduce_scatter_tensor": lambda whole, part, _, group: dist.reduce_scatter_tensor(
        part, whole, group=group
    ),
    "all_gather_into_tensor": lambda whole, part, _, group: dist.all_gather_into_tensor(
        whole, part, group=group
    ),
    "broadcast": lambda whole, part, _, group: dist.broadcast(whole, 0, group=group),
    "all_to_all_single": lambda whole, part, other, group: dist.all_to_all_single(other, whole, group=group),
}


def _contender(side: str, call: Callable[..., object], tensors: _Tensors, group: Any) -> Contender:
    return Contender(side, lambda: call(*tensors, group))


def _pair(make: Callable[[int], Tensor], size_bytes: int, ranks: int) -> _Tensors:
    return make(size_bytes), make(size_bytes // ranks), make(size_bytes)


def _plain(size_bytes: int) -> Tensor:
    """Zeros, for sums of sums of ones would end at infinity; written, so that each page is there."""
    return torch.empty(size_bytes // 4).fill_(0)


def _shared(size_bytes: int) -> Tensor:
    return tweed.empty(size_bytes // 4).fill_(0)
