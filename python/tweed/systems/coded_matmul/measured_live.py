"""Products by live workers whose computing is slept, as long as the model of delays draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.product_times import best_k, replicated_s
from tweed.data.coding.times import Stragglers
from tweed.forkserver import server
from tweed.report.notes import Notes
from tweed.testbed import Speed
from tweed.workloads.coded import CodedMatrix
from tweed.workloads.coded.simulated import coded
from tweed.workloads.tasks import LocalWorkers, map_tasks

#: Of the matrix: small, as its computing is slept.
ROWS, COLUMNS = 240, 100
#: All workers run a task of so many seconds before each product: those that were replaced have started then.
_READY_S = 0.15


def slept_part(payload: tuple[NDArray[Any], str, float, float], x: NDArray[Any]) -> tuple[Any, float]:
    """The task: a part's product, after the seconds of its first copy or of another one.

    Args:
      payload: the part; a file that the first copy makes; seconds of that one, and of others.

    Returns: the product, and the seconds by which computing took longer.
    """
    part, mark, first_s, spare_s = payload
    speed = Speed()
    with speed.lasting(first_s if _is_first(mark) else spare_s):
        found = part @ x
    return found, speed.over_s


def _is_first(mark: str) -> bool:
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a matrix is multiplied: its code, copies of each part, and whether late parts get another one."""

    coded: CodedMatrix
    copies: int = 1
    speculation: bool = False

    def is_enough(self, results: Mapping[int, Any]) -> bool:
        """Whether the product is known; part i is that of tasks i, i + n, ..."""
        return self.coded.is_enough([*{task % self.coded.code.n for task in results}])


def schemes(matrix: NDArray[Any], n: int, model: Stragglers) -> dict[str, Scheme]:
    """Contenders by their keys, each as is best for the model. Without copies, "replicated" is "uncoded"."""
    divisors = [copies for copies in range(1, n + 1) if n % copies == 0]
    copies = min(divisors, key=lambda copies: replicated_s(n, copies, model))
    whole = CodedMatrix(matrix, n, n)
    return {
        "uncoded": Scheme(whole),
        "replicated": Scheme(CodedMatrix(matrix, n // copies, n // copies), copies),
        "speculative": Scheme(whole, speculation=True),
        "coded": Scheme(CodedMatrix(matrix, n, best_k(n, model))),
    }


def live(notes: Notes, n: int, mu: float, products: int, seed: int) -> None:
    """Seconds of so many products by n live workers of each scheme, in turns, where `alpha` is a second."""
    if notes.has(kind="live", n=n, mu=mu, seed=seed):
        return
    notes.log(f"{products} products by {n} live workers, mu {mu:g}")
    server.preload(__name__)  # workers that are replaced find it imported
    model, random = Stragglers(1.0, mu), np.random.default_rng(1)
    matrix, x = random.normal(size=(ROWS, COLUMNS)), random.normal(size=COLUMNS)
    firsts, spares = (model.task_s(n, products, seed) for seed in (seed, seed + 1))
    contenders = schemes(matrix, n, model)
    taken: dict[str, list[float]] = {key: [] for key in contenders}
    over_s = 0.0
    with LocalWorkers(n) as workers, TemporaryDirectory() as folder:
        for trial, (key, scheme) in product(range(products), contenders.items()):
            marks = Path(folder, f"{trial}-{key}")
            multiply = _prepared(scheme, marks, firsts[trial], spares[trial], workers)
            map_tasks("time:sleep", [_READY_S] * n, workers=workers, speculation=False)
            began = time.monotonic()
            found, over = multiply(x)
            taken[key].append(time.monotonic() - began)
            over_s += over
            np.testing.assert_allclose(found, matrix @ x, atol=1e-9)
    shared = {"kind": "live", "n": n, "mu": mu, "seed": seed, "over_s": over_s}
    for key, seconds in taken.items():
        notes.add({**shared, "scheme": key, "seconds": seconds})


def drawn_s(n: int, k: int, mu: float, products: int, seed: int) -> float:
    """Mean seconds of products that k of n parts give, by the model, for the times of this seed."""
    return float(coded(Stragglers(1.0, mu).task_s(n, products, seed), k).mean())


def _prepared(
    scheme: Scheme,
    marks: Path,
    first_s: NDArray[np.float64],
    spare_s: NDArray[np.float64],
    workers: LocalWorkers,
) -> Callable[[NDArray[Any]], tuple[NDArray[Any], float]]:
    """A product by this scheme, whose workers have these seconds, each as for all of the matrix."""
    code = scheme.coded.code
    payloads = [
        (
            scheme.coded.parts[number % code.n],
            f"{marks}-{number}",
            first_s[number] / code.k,
            spare_s[number] / code.k,
        )
        for number in range(code.n * scheme.copies)
    ]

    def multiply(x: NDArray[Any]) -> tuple[NDArray[Any], float]:
        results = map_tasks(
            slept_part,
            payloads,
            shared=x,
            enough=scheme.is_enough,
            workers=workers,
            speculation=scheme.speculation,
        )
        products = {task % code.n: found for task, (found, _) in results.items()}
        return scheme.coded.decode(products), sum(over_s for _, over_s in results.values())

    return multiply
