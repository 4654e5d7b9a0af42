"""What each worker computes and sends in a step, by the name of a code; and when what came is enough.

    work = work_of("nested", workers=8, load=3)
    work.tasks[0], work.messages[0]      # of worker 0: its shards in order, and what it sends after which
    work.decode([(0, 0), (1, 0), ...])   # worker and place of each message that came -> how they add up

A *task* is one gradient: of a shard, or of one half of a point of a Lagrange code. A message mixes the
gradients of the tasks that are done, in one part or in two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.gradient_codes import Rows, decode, gradient_code, held, hybrid, nested, uncoded
from tweed.data.coding.lagrange import Lagrange
from tweed.errors import UsageError


class Half(NamedTuple):
    """A task of a Lagrange code: the gradient of one of the two losses of `halves`, at a point."""

    point: int
    second: bool


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a worker.

    Attributes:
      after: it is sent when so many tasks are done.
      mix: `[parts, after]`, of which gradients each part is made.
      row: `[columns]`, what it adds to what is known.
    """

    after: int
    mix: Rows
    row: NDArray[Any]


class Term(NamedTuple):
    """One message in the sum: which of those that came, and the weight of each of its parts."""

    place: int
    weights: tuple[float, ...]


class Decoded(NamedTuple):
    """How a mean over shards is formed: terms in the order in which they add up, and by what to divide."""

    terms: tuple[Term, ...]
    divisor: int


#: Messages that came, each as worker and place among the worker's messages.
Came = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Work:
    """See above.

    Attributes:
      shards: whose mean is wanted.
      tasks: per worker, in its order.
      messages: per worker, in its order.
      plain: each message is one shard's gradient, as it is.
      enough: of plain messages, so many different shards; of coded ones, fewer are never enough.
      even: so many messages of each worker are enough: where all are equally fast, the rest is not needed.
    """

    shards: int
    tasks: tuple[tuple[Any, ...], ...]
    messages: tuple[tuple[Message, ...], ...]
    wanted: NDArray[Any]
    enough: int
    plain: bool = False
    even: int = 0

    @property
    def parts(self) -> int:
        """Gradients in a message, side by side."""
        return len(self.messages[0][0].mix)

    def decode(self, came: Came) -> Decoded | None:
        """How what came adds up to the mean over shards; None if it is not enough yet.

        Plain messages add up in the order of shards, the first of each; the mean is then over those that
        came. Weights of coded messages may be large: add up in float64.

        Cost: for coded messages, a least squares problem of as many rows as came.
        """
        if len(came) < self.enough:
            return None
        return self._of_shards(came) if self.plain else self._of_codes(came)

    def _of_shards(self, came: Came) -> Decoded | None:
        first: dict[int, int] = {}
        for place, (worker, message) in enumerate(came):
            first.setdefault(self.tasks[worker][message], place)
        if len(first) < self.enough:
            return None
        return Decoded(tuple(Term(first[shard], (1.0,)) for shard in sorted(first)), len(first))

    def _of_codes(self, came: Came) -> Decoded | None:
        weights = decode(np.stack([self.messages[worker][at].row for worker, at in came]), self.wanted)
        if weights is None:
            return None
        # The real part of a product: of what came in two parts, the second counts with the opposite sign.
        pairs = [(one.real, -one.imag)[: self.parts] for one in weights.tolist()]
        terms = (Term(place, pair) for place, pair in enumerate(pairs) if any(pair))
        return Decoded(tuple(terms), self.shards)


def halves(real: Any, imaginary: Any) -> tuple[Any, Any]:
    """The two losses of a point of a Lagrange code, from the residuals of a linear model there.

    The gradient of the first is the real part of the code's value, that of the second the imaginary one.

        for point, second in run.shards():
            x, y = stored_x[point], stored_y[point]          # complex: `Lagrange.encode` of both
            residuals = model(x.real) - y.real, model(x.imag) - y.imag
            halves(*residuals)[second].backward()

    Args:
      real, imaginary: tensors or arrays, of the model at the real and at the imaginary part of what is
        stored, without what is wanted there.
    """
    return (real * real - imaginary * imaginary).sum() / 2, (real * imaginary).sum()


@cache
def work_of(code: str, workers: int, load: int, share: float = 1.0) -> Work:
    """The work of `workers`, of which each has `load` shards, by a code of `CODES`.

    Args:
      share: of all shards that are to come; below 1 with "uncoded" alone.

    Raises: UsageError for what cannot be, naming both.
    """
    if code not in CODES:
        raise UsageError(f"code {code!r} is none of {', '.join(CODES)}")
    if not 0 < share <= 1:
        raise UsageError(f"share={share!r} of all shards is to be above 0, and 1 at most")
    if share < 1 and code != "uncoded":
        raise UsageError(
            f"share={share!r} does not go with the code {code!r}: a combination of shards is no share of "
            'their sum. Take "uncoded", or share=1'
        )
    work = CODES[code](workers, load)
    if share < 1:
        work = replace(work, enough=int(np.ceil(share * workers - 1e-9)))
    counts = range(1, 1 + len(work.messages[0]))
    firsts = ([(worker, at) for at in range(count) for worker in range(workers)] for count in counts)
    even = next(count for count, came in enumerate(firsts, 1) if work.decode(came) is not None)
    return replace(work, even=even)


def _of_rows(make: Callable[[int, int], list[Rows]], plain: bool = False) -> Callable[[int, int], Work]:
    def made(workers: int, load: int) -> Work:
        rows = make(workers, load)
        tasks = tuple(tuple(held(worker, workers, load)) for worker in range(workers))
        messages = tuple(
            tuple(_message(row, own) for row in coded) for own, coded in zip(tasks, rows, strict=True)
        )
        enough = workers if plain else -(-workers // load)
        return Work(workers, tasks, messages, np.ones(workers), enough, plain)

    return made


def _message(row: Rows, tasks: Sequence[int]) -> Message:
    mine = row[list(tasks)]
    after = 1 + int(np.flatnonzero(mine).max())
    return Message(after, mine[None, :after], row)


def _lagrange(several: bool) -> Callable[[int, int], Work]:
    """A value of a polynomial is a combination of its coefficients: of powers of the place."""

    def made(workers: int, load: int) -> Work:
        code = lagrange_of(workers, load, several)
        powers = np.arange(code.needed)
        tasks, messages = [], []
        for worker in range(workers):
            # Far from each other on the circle: values of one arc decode badly.
            points = range(worker, code.points, workers)
            tasks.append(tuple(Half(point, second) for point in points for second in (False, True)))
            messages.append(
                tuple(
                    Message(2 * at + 2, np.eye(2, 2 * at + 2, 2 * at), code.places[point] ** powers)
                    for at, point in enumerate(points)
                )
            )
        wanted = (code.data[:, None] ** powers).sum(axis=0)
        return Work(code.shards, tuple(tasks), tuple(messages), wanted, code.needed)

    return made


def lagrange_of(workers: int, load: int, several: bool = True) -> Lagrange:
    """The code by which data are stored: with `several` messages a shard per worker, of which it stores
    `load` points; else one point of the size of `load` shards."""
    held(0, workers, load)
    return Lagrange(workers, workers * load) if several else Lagrange(-(-workers // load), workers)


#: Codes by name; all but the one-message ones send after each task.
CODES: dict[str, Callable[[int, int], Work]] = {
    "uncoded": _of_rows(uncoded, plain=True),
    "gradient_code": _of_rows(gradient_code),
    "nested": _of_rows(nested),
    "hybrid": _of_rows(hybrid),
    "lagrange": _lagrange(several=True),
    "lagrange, one message": _lagrange(several=False),
}
