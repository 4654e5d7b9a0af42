"""A member that is several processes: a *sharded member*, over which FSDP2 spreads the model.

    other members <── sums of whole gradients ──> the first process <── torch's default group ──> the others

The processes of a sharded member have torch's default group among themselves, for as long as it lives; each
has a shard of every parameter. The first one is the member: it has the links to other members, and runs
`tweed.elastic.ElasticRun` with gradients and states that are put together of all shards. What it comes to, it
says to the others, its *followers*, by an order:

    the first process                      followers                                     order
    its run needs the state of an object   their shards are gathered                     state
    its run takes a state                  each takes its shards                         load
    it does what one member alone does     they do so too: a forward pass needs all      first
    `due` returns                          `due` returns the same                        done
    it has left, or fails                  they raise it too                             failed

After an order all call the same collectives of the default group; between two orders followers only wait for
the next. `contribute` and `result` need none: all processes call them.

Losses: if one of the processes is lost, the next collective of the default group fails at the others, and
that ends the sharded member, which is then lost to the other members as a whole. A lost member is the first
process's to deal with; followers wait.

What cannot happen: two processes of a sharded member are at different steps; a loss within one is taken for
that of another member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tweed.data.sampler import Deal, GlobalOrder, Sampler
from tweed.elastic import ElasticRun
from tweed.elastic.change import Change
from tweed.elastic.epoch_transition import LOSSES
from tweed.elastic.member import Ahead
from tweed.elastic.state import State, Stateful, broadcast
from tweed.errors import DeadlineExceeded, TweedError, UsageError, remade
from tweed.exchange import values
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.gradients import local_buckets
from tweed.exchange.shards import is_spread, load_whole, whole

#: What the first process tells of its run, beside plain values.
_CLASSES = (Change, Ahead, Sampler, GlobalOrder, Deal)

_NO_SHARDS = (
    "members that come and go make their process group themselves, anew whenever they change: leave "
    "init_process_group() out. Or, if a member is several processes, spread the model over them by "
    "torch's fully_shard() before attach; or attach a model in DistributedDataParallel over a group of this "
    "process alone; {}"
)


class ShardedMember:
    """The processes of one member, among which this is one.

    Attributes:
      rank, size: of torch's default group.
      placements: how parameters are spread that are not by their first dimension, a line each.
      leaves: this process wants its member to leave.
    """

    def __init__(self, model: nn.Module) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.leaves = False
        self._group = dist.distributed_c10d._get_default_group()
        self._model_bytes = sum(param.numel() * param.element_size() for param in model.parameters())
        self.placements: list[str] = []
        for name, param in model.named_parameters():
            if not is_spread(param):
                raise UsageError(_NO_SHARDS.format(f"parameter {name!r} is not spread"))
            mesh = param.device_mesh  # type: ignore[attr-defined]
            if mesh.ndim != 1 or mesh.size() != self.size:
                raise UsageError(
                    f"elastic: parameter {name!r} is spread over a mesh of shape {tuple(mesh.shape)}, and "
                    f"this sharded member has {self.size} processes, which partition samples: give "
                    "fully_shard() a mesh of one dimension over all of them"
                )
            (placement,) = param.placements  # type: ignore[attr-defined]
            if not placement.is_shard(0):
                self.placements.append(f"{name} is spread by {placement!r}")

    @property
    def leads(self) -> bool:
        """This is the process that is the member."""
        return self.rank == 0

    @contextmanager
    def meets(self) -> Iterator[None]:
        """Calls of the default group: who is lost in them is of this sharded member."""
        try:
            yield
        except DeadlineExceeded as error:
            raise TweedError(
                "a process of this sharded member has waited for another one as long as torch's default "
                "group lets it: give init_process_group() a longer timeout than others may let it wait. "
                f"{error}"
            ) from error
        except LOSSES as error:
            raise TweedError(
                f"a process of this sharded member is lost, and the whole member with it; start all of it "
                f"again, and it joins the others: {error}"
            ) from error

    def led(
        self, name: str, act: Callable[[], Any], orders: Mapping[str, Callable[..., None]] | None = None
    ) -> Any:
        """The first process does this; the others follow its orders until it has. Returns what it returned,
        and raises what it raised, at all; what is no TweedError is one at the others.

        Args:
          name: of what is done.

        Raises: UsageError if processes do not do the same.
        """
        if not self.leads:
            return self._follow(name, orders or {})
        try:
            found = act()
        except Exception as error:
            kind = type(error).__name__
            text = f"the first process of this sharded member has failed: {kind}: {error}"
            with suppress(TweedError):  # a process of this sharded member may be lost
                self.told(("failed", *((kind, str(error)) if isinstance(error, TweedError) else ("", text))))
            raise
        self.told(("done", name, found))
        return found

    def _follow(self, name: str, orders: Mapping[str, Callable[..., None]]) -> Any:
        while True:
            what, *rest = self.told()
            if what == "done" and rest[0] == name:
                return rest[1]
            if what == "done":
                raise UsageError(
                    f"the first process of this sharded member is at {rest[0]}, and this one at {name}: let "
                    "all its processes end their loops at one step"
                )
            if what == "failed":
                raise remade(*rest)
            orders[what](*rest)

    def told(self, what: Any = None) -> Any:
        """What the first process says, at all."""
        with self.meets():
            return values.broadcast(self._group, what, 0, classes=_CLASSES)

    def state(self, state: State | None) -> State:
        """The state that the first process has, at all processes."""
        with self.meets():
            return broadcast(state, self._group, 0, self._model_bytes)

    def each(self, value: Any) -> list[Any]:
        """The values of all processes, at all."""
        with self.meets():
            return values.gather(self._group, value)

    def buckets(self, own: Sequence[GradientBucket]) -> list[GradientBucket]:
        """At the first process, buckets of the shards of all, as they follow each other in a contribution;
        `own` has this process's."""
        kinds = [(one.bucket.values.dtype, one.bucket.values.device) for one in own]
        shapes = self.each([[view.shape for view in one.bucket.views if view.numel()] for one in own])
        if not self.leads:
            return []
        groups = [
            {
                str(number): torch.empty(shape, dtype=kind[0], device=kind[1])
                for number, shape in enumerate(one)
            }
            for of_process in shapes
            for kind, one in zip(kinds, of_process, strict=True)
            if one
        ]
        return local_buckets(groups)

    def gathered(self, shard: Tensor, longest: int) -> list[Tensor]:
        """The shards of all, `[longest]` each, at the first; at the others none."""
        padded = torch.nn.functional.pad(shard, (0, longest - shard.numel()))
        found = [torch.empty_like(padded) for _ in range(self.size)] if self.leads else None
        with self.meets():
            dist.gather(padded, found, dst=0)
        return found or []

    def scattered(self, shards: Sequence[Tensor], longest: int, like: Tensor) -> Tensor:
        """This process's, `[longest]`, of those that the first gives."""
        found = like.new_empty(longest)
        given = [torch.nn.functional.pad(one, (0, longest - one.numel())) for one in shards]
        with self.meets():
            dist.scatter(found, given or None, src=0)
        return found

    def summed(self, values: Tensor) -> Tensor:
        """Over all processes, at all."""
        with self.meets():
            dist.all_reduce(values)
        return values

    def sent(self, values: Tensor) -> Tensor:
        """The first process's, at all."""
        with self.meets():
            dist.broadcast(values, src=0)
        return values


class Whole:
    """At the first process: an object whose state is put together of all shards."""

    def __init__(self, sharded_member: ShardedMember, name: str, kept: Stateful) -> None:
        self._sharded_member, self._name, self._kept = sharded_member, name, kept

    def state_dict(self) -> dict[str, Any]:
        """The state with whole tensors, to which all processes contribute."""
        self._sharded_member.told(("state", self._name))
        return _whole(self._sharded_member, self._kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a state with whole tensors at all processes."""
        self._sharded_member.told(("load", self._name))
        load_whole(self._kept, self._sharded_member.state(State(state)).tree)


def _whole(sharded_member: ShardedMember, kept: Stateful) -> dict[str, Any]:
    """At the first process; at the others nothing of it stays."""
    with sharded_member.meets():
        found: dict[str, Any] = whole(kept.state_dict(), keep=sharded_member.leads)
    return found


#: What of its run the first process tells the others after each call.
_SEEN = ("steps_done", "members", "epochs", "changes", "paused_s", "samples", "position", "ahead", "replaced")


class ShardedMemberRun:
    """What `ElasticRun` is to a process, to each process of a sharded member. See the module.

    Args:
      sharded_member: this process's.
      sizes: elements of the gradients here; and of what follows them in a contribution, which is as long at
        all processes.
      like: of the type of contributions.
      keep: as `ElasticRun` has it.
      made: makes the first process's run, of what it is to keep.

    Attributes:
      steps_done, members, epochs, changes, paused_s, samples, position, ahead, replaced, told: see
        `ElasticRun`.
    """

    def __init__(
        self,
        sharded_member: ShardedMember,
        sizes: tuple[int, int],
        like: Tensor,
        keep: Mapping[str, Stateful],
        made: Callable[[Mapping[str, Stateful]], ElasticRun],
    ) -> None:
        self._sharded_member, self._keep = sharded_member, dict(keep)
        (self._shard, self._rest), self._like = sizes, like
        self._shards: list[int] = sharded_member.each(self._shard)
        self._run: ElasticRun | None = None
        self._first: Callable[[], None] = lambda: None

        def begin() -> None:
            self._run = made({name: Whole(sharded_member, name, one) for name, one in self._keep.items()})

        self.steps_done: int
        self._finite = True
        self.members: tuple[str, ...]
        self.epochs: list[int]
        self.changes: list[Change]
        self.paused_s: float
        self.samples: dict[str, int]
        self.position: dict[str, Any]
        self.ahead: Ahead
        self.replaced: bool
        self.told: list[Any] = []
        self._led("the begin of the run", begin)

    def due(self, first: Callable[[], None] | None = None) -> list[int] | None:
        """The samples that are due, of all processes of the sharded member, as `ElasticRun.due` has them."""
        if first is not None:
            self._first = first

        def go_on() -> list[int] | None:
            return self._own.due(None if first is None else self._do_first)

        found: list[int] | None = self._led("a step", go_on)
        return found

    def begin_step(self) -> None:
        """Begins a step, as `ElasticRun.begin_step` does."""
        self._led("the begin of a step", lambda: self._own.begin_step())

    def revert(self) -> None:
        """Reverts a step that is broken off, as `ElasticRun.revert` does."""
        self._led("a step that is broken off", lambda: self._own.revert())

    def start(self, contribution: Tensor, ready: int) -> None:
        """Nothing, as its parts are spread over the processes."""

    def contribute(self, total: Tensor, samples: int) -> None:
        """Contributes as `ElasticRun.contribute` does: `total` is this process's shard of the sum, and what
        follows it."""
        shard, rest = total.split_with_sizes([self._shard, self._rest])
        # What follows are means, of which each process has its own; and whether it wants to leave.
        rest = torch.cat([rest / self._sharded_member.size, rest.new_tensor([self._sharded_member.leaves])])
        rest = self._sharded_member.summed(rest)
        shards = self._sharded_member.gathered(shard, max(self._shards))
        if self._sharded_member.leads:
            each = [one[:numel] for one, numel in zip(shards, self._shards, strict=True)]
            self._own.contribute(torch.cat([*each, rest[:-1]]), samples)
            if rest[-1]:
                self._own.leave()

    def result(self) -> Tensor:
        """The mean, as `ElasticRun.result` has it: this process's shard of it, and what follows that."""
        shards, rest = list[Tensor](), self._like.new_empty(self._rest + 2)
        if self._sharded_member.leads:
            own, before = self._own, self._own.steps_done
            *shards, rest = own.result().split_with_sizes([*self._shards, self._rest])
            seen = [own.is_finite(sum(self._shards)), own.steps_done - before]
            rest = torch.cat([rest, rest.new_tensor(seen)])
        mine = self._sharded_member.scattered(shards, max(self._shards), self._like)
        rest = self._sharded_member.sent(rest)
        finite, counted = rest[-2:].tolist()
        self._finite, self.steps_done = bool(finite), self.steps_done + int(counted)
        return torch.cat([mine[: self._shard], rest[:-2]])

    def is_finite(self, numel: int) -> bool:
        """Whether the gradients of all processes are in the last result; `numel`: how many are here."""
        return self._finite

    def finish(self, first: Callable[[], None] | None = None, tell: Any = None) -> None:
        """The first process's `tell` counts."""
        if first is not None:
            self._first = first

        def end() -> list[Any]:
            self._own.finish(None if first is None else self._do_first, tell)
            return self._own.told

        self.told = self._led("the end of the loop", end)

    def close(self) -> None:
        if self._run is not None:
            self._run.close()

    @property
    def _own(self) -> ElasticRun:
        assert self._run is not None  # this is the first process, and has begun
        return self._run

    def _led(self, name: str, act: Callable[[], Any]) -> Any:
        def acted() -> tuple[Any, dict[str, Any]]:
            found, run = act(), self._own
            return found, {name: getattr(run, name) for name in _SEEN}

        orders: dict[str, Callable[..., None]]
        orders = {"state": self._gather, "load": self._load, "first": lambda: self._first()}
        found, seen = self._sharded_member.led(name, acted, orders)
        for at, value in seen.items():
            setattr(self, at, value)
        return found

    def _gather(self, name: str) -> None:
        _whole(self._sharded_member, self._keep[name])

    def _load(self, name: str) -> None:
        load_whole(self._keep[name], self._sharded_member.state(None).tree)

    def _do_first(self) -> None:
        self._sharded_member.told(("first",))
        with self._sharded_member.meets():  # a forward pass meets the others
            self._first()
