"""Plain loops of members that come and go. Without pytest, as each rank imports it."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

import tweed
from tests.elastic.members import among, kill_me
from tests.faults.ring import logs_here
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Control, Elastic, start
from tweed.elastic.training.run import ElasticTraining
from tweed.errors import ShapeMismatch, TweedError, UsageError
from tweed.exchange.shards import whole
from tweed.testbed import say

SAMPLES, BATCH, PER_MEMBER, STEPS, KILLED_AT, TOGETHER = 60, 12, 5, 30, 10, 20


def dataset() -> TensorDataset:
    x = torch.randn(SAMPLES, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, torch.tanh(x.sum(1, keepdim=True)))


class Trainee:
    """What a user's program has. A seed of its own: founders begin with rank 0's model."""

    def __init__(
        self,
        seed: int,
        *,
        normed: bool = False,
        scaled: bool = False,
        processes: int = 1,
        roots: bool = False,
    ) -> None:
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)]
        if normed:
            layers.insert(1, nn.BatchNorm1d(6))
        self.model = nn.Sequential(*layers).double()
        if processes > 1:  # torch's default group has so many
            from torch.distributed.device_mesh import init_device_mesh  # seconds, and few ranks need it
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (processes,))
            for layer in layers:
                fully_shard(layer, mesh=mesh)
            if not roots:
                fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        # Scales that are powers of two change no bits, and these grow with the steps.
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=4, enabled=scaled)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 7, 0.8)

    def learn(self, x: Tensor, y: Tensor, before: Callable[[], Any] = lambda: None) -> None:
        """The body of the loop; `before` is called between a backward pass's work and its end."""
        self.optimizer.zero_grad()
        loss = (self.model(x) - y).square().mean()
        before()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()

    def wrap(self, **options: Any) -> None:
        """Puts the model into DistributedDataParallel, with a group of this process alone."""
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.model = nn.parallel.DistributedDataParallel(self.model, **options)

    def dies_late(self) -> None:
        """The next backward pass ends this process as it comes to the first layer."""
        self.model[0].weight.register_hook(lambda _: kill_me())

    def keep(self, run: ElasticTraining) -> None:
        """What else changes with the steps."""
        run.keep("schedule", self.schedule)
        run.keep("scaler", self.scaler)

    @property
    def flat(self) -> Tensor:
        """Parameters and buffers, whole."""
        state = whole([*self.model.parameters(), *self.model.buffers()])
        return torch.cat([tensor.detach().reshape(-1).double() for tensor in state])


class Ended(NamedTuple):
    digest: str
    flat: Tensor
    steps_done: int
    epochs: list[int]
    iterations: int
    lr: float


def undisturbed(steps: int) -> Tensor:
    """One process alone, without tweed."""
    trainee, (x, y), order = Trainee(0), dataset().tensors, GlobalOrder(SAMPLES, seed=3)
    for step in range(steps):
        samples = order.samples(range(step * BATCH, (step + 1) * BATCH))
        trainee.learn(x[samples], y[samples])
    return trainee.flat


def each_with_its_own(members: int, lost: int) -> Tensor:
    """The same with a batch per member, where one is lost within step `KILLED_AT`: its samples come later."""
    trainee, (x, y), ranks = Trainee(0), dataset().tensors, [str(rank) for rank in range(members)]
    sampler = Sampler(GlobalOrder(SAMPLES, seed=3), PER_MEMBER, per_member=True)
    left = [rank for rank in ranks if rank != str(lost)]
    for step in range(STEPS):
        deal = sampler.dealt([ranks] if step < KILLED_AT else [ranks, left] if step == KILLED_AT else [left])
        samples = sampler.order.samples(deal.places)
        trainee.learn(x[samples], y[samples])
        sampler = sampler.counted(deal)
    return trainee.flat


def ended(run: ElasticTraining, trainee: Trainee, iterations: int) -> Ended:
    digest = hashlib.sha256(trainee.flat.numpy().tobytes()).hexdigest()
    lr = trainee.optimizer.param_groups[0]["lr"]
    return Ended(digest, trainee.flat, run.steps_done, run.epochs, iterations, lr)


def trains(rank: int, size: int, port: int, dies: dict[int, int], options: dict[str, Any]) -> Ended:
    """Members kill themselves at the steps in `dies`, within an iteration; or leave, if that is negative.
    With `in_parts` each parameter is a part of the sum, and they do so when all but the last have begun.
    With `ddp` they train through that, with these options of its.
    """
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    looks = {name: options.pop(name, False) for name in ("normed", "scaled")}
    trainee, at, iterations = Trainee(rank, **looks), dies.get(rank), 0
    if "ddp" in options:
        trainee.wrap(**options.pop("ddp"))
    control = start(store, rank, size, Elastic(1, size))
    strategy = options.pop("strategy", tweed.every_step())
    options |= {} if "per_member" in options else {"batch": BATCH}
    in_parts = options.pop("in_parts", False)
    bucket_bytes = 1 if in_parts else 2**20
    run = tweed.attach(trainee.model, trainee.optimizer, strategy, elastic=control, bucket_bytes=bucket_bytes)
    die: Callable[[], Any] = trainee.dies_late if in_parts else kill_me
    trainee.keep(run)
    with run, run.leaving_on(signal.SIGTERM):
        for x, y in run.batches(dataset(), STEPS, seed=3, check_every=1, **options):
            if at is not None and run.steps_done == -at:
                os.kill(os.getpid(), signal.SIGTERM)
                at = None
            trainee.learn(x, y, die if run.steps_done == at else lambda: None)
            iterations += 1
    return ended(run, trainee, iterations)


def interrupted(rank: int, size: int, port: int) -> list[int]:
    """Members that have to be two train until Ctrl-C; within a step the others wait for rank 0, until it is
    told to go on."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    trainee, control = Trainee(rank), start(store, rank, size, Elastic(2, size))
    logs_here()

    def halt() -> None:
        if run.steps_done == KILLED_AT:
            say("within a step")
            if rank == 0:
                store.get("go on")

    try:
        with tweed.attach(trainee.model, trainee.optimizer, elastic=control) as run:
            trainee.keep(run)
            for x, y in run.batches(dataset(), 10**6, BATCH, seed=3):
                trainee.learn(x, y, halt)
                if run.steps_done == 2 * KILLED_AT:
                    say("goes on")
    except KeyboardInterrupt:
        return run.epochs
    raise AssertionError("it ends by Ctrl-C alone")


def spreads(rank: int, size: int, port: int, dies: dict[int, int], options: dict[str, Any]) -> Ended | str:
    """Members of two processes each, over which FSDP2 spreads the model. A process may kill itself, or ask
    that its member leaves, as in `trains`; all but `founders` members join, and all go on for some steps
    together. Whose sharded member ends says why."""
    store, last = dist.TCPStore("127.0.0.1", port, is_master=False), STEPS
    (member, process), at, members = divmod(rank, 2), dies.get(rank), size // 2
    own = dist.PrefixStore(f"sharded member {member}", store)
    dist.init_process_group("tweed", store=own, rank=process, world_size=2)
    looks = {name: options.pop(name, False) for name in ("roots", "scaled")}
    trainee, firsts = Trainee(member, processes=2, **looks), list[int]()
    founders = options.pop("founders", members)
    elastic: Elastic | Control = Elastic(1, members)
    if process == 0:
        elastic = among(store, member, founders, Elastic(1, members))
    if founders < members:
        last = 10**6
    strategy, breaks = options.pop("strategy", tweed.every_step()), options.pop("breaks", None) == rank
    try:
        with tweed.attach(trainee.model, trainee.optimizer, strategy, elastic=elastic) as run:
            trainee.keep(run)
            options |= {"check_every": 1, "first": lambda: firsts.append(run.steps_done)}
            for x, y in run.batches(dataset(), last, BATCH, seed=3, **options):
                if at is not None and run.steps_done >= -at > 0:
                    run.leave()
                trainee.learn(x, y, kill_me if run.steps_done == at else lambda: None)
                if last == 10**6 and len(run.members) == members:
                    last = int(store.compare_set("last", "", str(run.steps_done + TOGETHER)))
                if run.steps_done >= last or (breaks and run.steps_done == KILLED_AT):
                    break
            if breaks:
                run.finish()
            return ended(run, trainee, len(firsts))
    except TweedError as error:
        return str(error)


def joins(
    rank: int,
    size: int,
    port: int,
    victim: int | None,
    strategy: str = "every_step",
    batch: str = "batch",
) -> Ended:
    """The last rank joins, all go on for some steps together, and one may kill itself then."""
    store, last = dist.TCPStore("127.0.0.1", port, is_master=False), 10**6
    control = among(store, rank, size - 1, Elastic(1, size))
    trainee, iterations = Trainee(rank), 0
    # Each parameter is a part of the sum.
    with tweed.attach(trainee.model, trainee.optimizer, strategy, elastic=control, bucket_bytes=1) as run:
        trainee.keep(run)
        deal: Any = {batch: BATCH if batch == "batch" else PER_MEMBER}
        for x, y in run.batches(dataset(), 10**6, seed=3, check_every=1, **deal):
            dies = rank == victim and run.steps_done == last - TOGETHER // 2
            trainee.learn(x, y, kill_me if dies else lambda: None)
            iterations += 1
            if last == 10**6 and len(run.members) == size:  # the first that sees all says when they end
                last = int(store.compare_set("last", "", str(run.steps_done + TOGETHER)))
            if run.steps_done >= last:
                break
    return ended(run, trainee, iterations)


def resumes(
    rank: int, size: int, port: int, folder: Path, attempt: str, steps: int, strategy: Any = "every_step"
) -> Ended:
    """Goes on from what rank 0 has stored by `state_dict`, as any program stores its own."""
    store = dist.PrefixStore(attempt, dist.TCPStore("127.0.0.1", port, is_master=False))
    trainee, kept = Trainee(rank), folder / "kept.pt"
    control = start(store, rank, size, Elastic(1, 4))
    with tweed.attach(trainee.model, trainee.optimizer, strategy, elastic=control) as run:
        if kept.exists():
            state = torch.load(kept)
            trainee.model.load_state_dict(state["model"])
            trainee.optimizer.load_state_dict(state["optimizer"])
            trainee.schedule.load_state_dict(state["schedule"])
            run.load_state_dict(state["run"])
        trainee.keep(run)
        for x, y in run.batches(dataset(), steps, BATCH, seed=3):
            trainee.learn(x, y)
        if run.rank == 0:
            parts = {"model": trainee.model, "optimizer": trainee.optimizer, "schedule": trainee.schedule}
            torch.save({name: part.state_dict() for name, part in (parts | {"run": run}).items()}, kept)
    return ended(run, trainee, steps)


def twice(rank: int, size: int, port: int, strategy: tweed.Strategy) -> Ended:
    """Leaves its loop within a round, and goes on in another one."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    trainee, control = Trainee(rank), start(store, rank, size, Elastic(1, size))
    with tweed.attach(trainee.model, trainee.optimizer, strategy, elastic=control) as run:
        trainee.keep(run)
        for number, (x, y) in enumerate(run.batches(dataset(), STEPS, BATCH, seed=3, check_every=1)):
            trainee.learn(x, y)
            if number == KILLED_AT:
                break
        for x, y in run.batches(dataset(), STEPS, BATCH, seed=3, check_every=1):
            trainee.learn(x, y)
    return ended(run, trainee, 0)


def differs(rank: int, size: int, port: int, what: str) -> Ended | str:
    """Rank 1 has another model, or a part of the data."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    odd, trainee, data = rank == 1, Trainee(rank), dataset()
    if odd and what == "model":
        trainee = Trainee(rank, normed=True)
    control = start(store, rank, size, Elastic(1, size))
    try:
        with tweed.attach(trainee.model, trainee.optimizer, elastic=control) as run:
            trainee.keep(run)
            given = Subset(data, range(20)) if odd and what == "data" else data
            for x, y in run.batches(given, STEPS, BATCH, seed=3):
                trainee.learn(x, y)
    except (UsageError, ShapeMismatch) as error:
        return str(error)
    return ended(run, trainee, STEPS)
