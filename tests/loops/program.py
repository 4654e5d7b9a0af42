"""A training loop as a value: what one program does, operation by operation, on every rank alike.

The text of a program is a Python expression that makes it again: `str(program)` and `parse(text)`.
"""

from __future__ import annotations

import ast
from dataclasses import MISSING, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """A batch that is learned.

    Attributes:
      data: number of the batch; each rank has its own of that number.
      passes: backward passes whose gradients add up.
      sync: each of them exchanges; else all but the last are within `run.no_sync()`.
      by: who changes the parameters: "optimizer", "closure" (the optimizer calls it), "hand"
        (`p.data.add_(p.grad, alpha=-lr)`), "backward" (each parameter's optimizer, from a hook).
      uses: which part of the model has gradients: "all", "body", or "odd" (all at odd ranks, body at others).
      clip: gradients are clipped by their norm.
      clear: how gradients are cleared afterwards: "none", "zero", or "hand" (`p.grad = None`).
      keep: `p.grad` is kept without a clone.
      between: what the loop does between backward pass and step: "", "rebind", "averaged", "state"
        (`run.state_dict()`), "forward" (an evaluation).
    """

    data: int
    passes: int = 1
    sync: bool = False
    by: str = "optimizer"
    uses: str = "all"
    clip: bool = False
    clear: str = "none"
    keep: bool = False
    between: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """A batch that is not learned: its gradients are thrown away, and nothing steps.

    Attributes:
      why: "spike" (the loop looks at the loss after the backward pass), "overflow" (a gradient scaler found
        infinity), "raised" (the forward pass raised, and that was caught).
      clear: as in `Step`.
      quiet: its backward pass is within `run.no_sync()`.
      keep: as in `Step`.
    """

    data: int
    why: str = "spike"
    clear: str = "none"
    quiet: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Combine:
    """Two backward passes whose gradients are kept, cleared, added by hand, and stepped with (PCGrad)."""

    data: int


@dataclass(frozen=True, slots=True)
class Rebind:
    """New memory, same values.

    Attributes:
      how: "data" (`p.data = p.data.clone()`), "vector" (`vector_to_parameters`), "swap" (an average in place
        of the parameters, and back), "format" (another memory format), "parameter" (a new `Parameter` in the
        same slot, which the optimizer holds too), "buffer" (a new buffer).
    """

    how: str = "data"


@dataclass(frozen=True, slots=True)
class Move:
    """Other values: each parameter is multiplied by 0.75, in place or (`rebinds`) in new memory."""

    rebinds: bool = False


@dataclass(frozen=True, slots=True)
class Teach:
    """A teacher, which has no gradient, moves towards the model by hand."""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """The model is looked at within `run.averaged()`."""


@dataclass(frozen=True, slots=True)
class Finish:
    """`run.finish()`, and training goes on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduler halves the learning rate."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """The head requires no gradient from now on; or again, where `thaw`."""

    thaw: bool = False


@dataclass(frozen=True, slots=True)
class AddGroup:
    """The head comes into the optimizer now, in a group of its own; it was not there before."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The program is stored, ends, and goes on from what was stored.

    Attributes:
      data: it is stored between backward pass and step of this batch, which is learned again afterwards;
        None: between two batches.
    """

    data: int | None = None


@dataclass(frozen=True, slots=True)
class Fewer:
    """As `Resume`, without the last rank; then `data` is learned."""

    data: int


@dataclass(frozen=True, slots=True)
class Cast:
    """The model has another dtype from now on; then `data` is learned."""

    data: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """An optimizer steps the model that attach was not given."""

    data: int


@dataclass(frozen=True, slots=True)
class Unfreeze:
    """A parameter that was frozen at attach, and is in the optimizer, requires a gradient; then `data` is
    learned."""

    data: int


@dataclass(frozen=True, slots=True)
class ClearSome:
    """After the backward pass of batch `data` only the head's gradients are cleared, and nothing steps; then
    batch `data + 1` is learned."""

    data: int


@dataclass(frozen=True, slots=True)
class Differ:
    """Batch `data` is skipped by the first rank alone; then all go on with `data + 1`."""

    data: int


Operation = (
    Step
    | Skip
    | Combine
    | Rebind
    | Move
    | Teach
    | Evaluate
    | Finish
    | Schedule
    | Freeze
    | AddGroup
    | Resume
    | Fewer
    | Cast
    | Foreign
    | Unfreeze
    | ClearSome
    | Differ
)


@dataclass(frozen=True, slots=True)
class Program:
    """What all ranks of a group run.

    Attributes:
      strategy: a named strategy, with settings.
      ranks: size of the group.
      backend: of the group, "gloo" or "tweed".
      double: the model is float64, else float32.
      momentum: of SGD.
      optimizers: "one" for the whole model, "two" for body and head, "each": one per parameter.
      scaler: losses are scaled, by a gradient scaler.
      idle: the model has a frozen part that is not used, and is in the optimizer.
      buckets: one bucket, else one for each parameter.
      operations: in their order.
    """

    strategy: str = "every_step"
    ranks: int = 1
    backend: str = "gloo"
    double: bool = False
    momentum: float = 0.0
    optimizers: str = "one"
    scaler: bool = False
    idle: bool = False
    buckets: bool = True
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return _text(self)

    def has(self, *kinds: type) -> bool:
        """Whether it has an operation of these kinds."""
        return any(isinstance(operation, kinds) for operation in self.operations)


def parse(text: str) -> Program:
    """The program that `text` is of. Raises ValueError if it is of none."""
    program = _value(ast.parse(text.strip(), mode="eval").body)
    if not isinstance(program, Program):
        raise ValueError(f"{text!r} is no Program(...)")
    return program


_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*Operation.__args__, Program)}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KINDS:
        words = {str(word.arg): _value(word.value) for word in node.keywords}
        return _KINDS[node.func.id](*map(_value, node.args), **words)
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    return ast.literal_eval(node)


def _text(value: Any) -> str:
    """Without what is as always."""
    if isinstance(value, tuple):
        return f"({''.join(_text(each) + ', ' for each in value).strip()})"
    if type(value).__name__ not in _KINDS:
        return repr(value)
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    usual = {field.name: field.default for field in fields(value) if field.default is not MISSING}
    words = [
        _text(given[name]) if name not in usual else f"{name}={_text(given[name])}"
        for name in given
        if name not in usual or given[name] != usual[name]
    ]
    return f"{type(value).__name__}({', '.join(words)})"
