"""Measurements of coded products: subsets, condition numbers, simulated times, and what coding costs here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np

from tweed.data.coding.mds import mds_code
from tweed.data.coding.product_times import best_k, best_share, coded_s, replicated_s, uncoded_s
from tweed.data.coding.times import Stragglers
from tweed.errors import UsageError
from tweed.report.notes import Line, Notes
from tweed.workloads.coded import CodedMatrix, simulate_products
from tweed.workloads.coded.simulated import SCHEMES

#: Rows of a part, and columns, at the experiment's size; encoding is timed on so many of them.
HEIGHT, COLUMNS, ENCODED = 200, 100_000, 500


def subsets(notes: Notes, n: int, k: int, dtype: str, most: int) -> None:
    """How far a product is off, beside its largest value: of all subsets, or of so many drawn ones."""
    if notes.has(kind="subsets", n=n, k=k, dtype=dtype):
        return
    random = np.random.default_rng([n, k])
    matrix, x = random.normal(size=(4 * k + 1, 50)).astype(dtype), random.normal(size=50).astype(dtype)
    coded, wanted = CodedMatrix(matrix, n, k), matrix @ x
    products = coded.parts @ x
    chosen: Iterable[Any] = combinations(range(n), k)
    if n > 12:
        chosen = [random.permutation(n)[:k].tolist() for _ in range(most)]
    errors, refused = [], 0
    for which in chosen:
        if coded.is_enough(which):
            found = coded.decode({number: products[number] for number in which})
            errors.append(float(np.abs(found - wanted).max() / np.abs(wanted).max()))
        else:
            refused += 1
    facts = {"subsets": len(errors), "refused": refused, "error": max(errors)}
    notes.add({"kind": "subsets", "n": n, "k": k, "dtype": dtype, **facts})


def condition(notes: Notes, n: int, k: int, points: str) -> None:
    """The worst condition number of a code, and what is said of it if it is refused at six digits."""
    if notes.has(kind="condition", n=n, k=k, points=points):
        return
    worst, refused = mds_code(n, k, points, digits=np.inf).worst, None
    try:
        mds_code(n, k, points)
    except UsageError as error:
        refused = str(error)
    notes.add({"kind": "condition", "n": n, "k": k, "points": points, "worst": worst, "refused": refused})


def simulated(notes: Notes, n: int, mu: float, trials: int) -> None:
    """Mean and tail of each scheme where `alpha` is a second, beside what is expected."""
    model = Stragglers(1.0, mu)
    divisors = [copies for copies in range(1, n + 1) if n % copies == 0]
    expected = {
        "uncoded": uncoded_s(n, model),
        "replicated": min(replicated_s(n, copies, model) for copies in divisors),
        "coded": coded_s(n, best_k(n, model), model),
    }
    for scheme in SCHEMES:
        if not notes.has(kind="simulated", n=n, mu=mu, scheme=scheme):
            times = simulate_products(scheme, n, model, trials)
            facts: Line = {"seconds": float(times.mean()), "p99_s": float(np.quantile(times, 0.99))}
            line = {"kind": "simulated", "n": n, "mu": mu, "scheme": scheme}
            notes.add({**line, **facts, "expected": expected.get(scheme)})


def quickest_k(notes: Notes, n: int, mu: float, trials: int) -> None:
    """The k with the least simulated mean, beside the one that Lambert's function gives."""
    if notes.has(kind="k", n=n, mu=mu):
        return
    model = Stragglers(1.0, mu)
    means = np.sort(model.task_s(n, trials), axis=1).mean(axis=0) / np.arange(1, n + 1)
    facts = {"quickest": int(np.argmin(means)) + 1, "share": best_share(model), "chosen": best_k(n, model)}
    notes.add({"kind": "k", "n": n, "mu": mu, **facts})


def costs(notes: Notes, n: int, k: int, repeats: int) -> None:
    """Seconds of a part's product, of decoding, and of encoding, with one thread as the launcher has it."""
    if notes.has(kind="costs", n=n, k=k):
        return
    notes.log(f"timing products of {HEIGHT} x {COLUMNS} parts")
    code, random = mds_code(n, k), np.random.default_rng(0)
    part, x = random.normal(size=(HEIGHT, COLUMNS)), random.normal(size=COLUMNS)
    part_s = _median_s(lambda: part @ x, repeats)
    products = random.normal(size=(n, HEIGHT))
    drawn = iter([random.permutation(n)[:k] for _ in range(repeats)])

    def decode() -> None:
        which = next(drawn)
        code.decode(which.tolist(), products[which])

    decode_s = _median_s(decode, repeats)
    blocks = random.normal(size=(k, HEIGHT, ENCODED))
    encode_s = _median_s(lambda: code.encode(blocks), 3) * COLUMNS / ENCODED
    facts = {"whole_s": part_s * k, "decode_s": decode_s, "encode_s": encode_s}
    notes.add({"kind": "costs", "n": n, "k": k, "height": HEIGHT, "columns": COLUMNS, **facts})


def _median_s(do: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        do()
        taken.append(time.perf_counter() - began)
    return median(taken)
