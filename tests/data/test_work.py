"""What workers send by each code, and that it adds up to the mean as soon as it is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.coding import CODES, Work, halves, lagrange_of, work_of
from tweed.errors import UsageError

NUMEL = 3
ROWS = [code for code in CODES if not code.startswith("lagrange")]


def gradients(tasks: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(tasks).normal(size=(tasks, NUMEL))


def first_enough(work: Work, order: list[tuple[int, int]]) -> tuple[int, Any]:
    """After how many messages there is a sum, and that."""
    for count in range(1, len(order) + 1):
        decoded = work.decode(order[:count])
        if decoded is not None:
            return count, decoded
    raise AssertionError("all messages together are not enough")


def messages(work: Work) -> list[tuple[int, int]]:
    return [(worker, place) for worker, own in enumerate(work.messages) for place in range(len(own))]


def value(work: Work, which: tuple[int, int], of_tasks: list[Any]) -> Any:
    worker, place = which
    message = work.messages[worker][place]
    return message.mix @ np.stack(of_tasks[: message.after])


@pytest.mark.parametrize("code", ROWS)
@given(
    size=st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    random=st.randoms(use_true_random=False),
)
def test_messages_add_up_to_the_mean_in_whatever_order_they_come(
    code: str, size: tuple[int, int], random: Any
) -> None:
    workers, load = size
    work, of_shards = work_of(code, workers, load), gradients(workers)
    order = messages(work)
    random.shuffle(order)
    count, decoded = first_enough(work, order)
    assert count >= work.enough
    total = np.zeros(NUMEL)
    for term in decoded.terms:
        worker, _ = order[term.place]
        came = value(work, order[term.place], [of_shards[shard] for shard in work.tasks[worker]])
        total += np.asarray(term.weights) @ came
    np.testing.assert_allclose(total / decoded.divisor, of_shards.mean(axis=0), atol=1e-6)


@given(st.randoms(use_true_random=False))
def test_plain_messages_add_up_in_the_order_of_shards_each_once_and_as_they_are(random: Any) -> None:
    work = work_of("uncoded", 6, 3)
    order = messages(work)
    random.shuffle(order)
    count, decoded = first_enough(work, order)
    shards = [(order[term.place][0] + order[term.place][1]) % 6 for term in decoded.terms]
    assert shards == list(range(6)) and decoded.divisor == 6
    assert all(term.weights == (1.0,) for term in decoded.terms)
    assert (order[count - 1][0] + order[count - 1][1]) % 6 not in [sum(one) % 6 for one in order[: count - 1]]


@pytest.mark.parametrize(
    ("code", "even"),
    [
        ("uncoded", 1),
        ("gradient_code", 1),
        ("nested", 1),
        ("hybrid", 1),
        ("lagrange", 2),
        ("lagrange, one message", 1),
    ],
)
def test_of_equally_fast_workers_so_many_messages_each_are_enough(code: str, even: int) -> None:
    assert work_of(code, 8, 3).even == even


def test_a_share_is_enough_and_divides_by_what_came() -> None:
    work = work_of("uncoded", 8, 2, 0.75)
    assert work.decode([(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (3, 0)]) is None  # five shards
    decoded = work.decode([(5, 1), (0, 0), (0, 1), (2, 0), (2, 1), (4, 0)])
    assert decoded is not None and decoded.divisor == 6 and [term.place for term in decoded.terms][-1] == 0


@pytest.mark.parametrize("code", ["lagrange", "lagrange, one message"])
@pytest.mark.parametrize("seed", range(3))
def test_values_of_encoded_shards_add_up_to_the_gradient_of_least_squares(code: str, seed: int) -> None:
    random, workers, load = np.random.default_rng(seed), 8, 3
    work, stored_as = work_of(code, workers, load), lagrange_of(workers, load, code == "lagrange")
    x, y = random.normal(size=(work.shards, 5, 4)), random.normal(size=(work.shards, 5))
    stored_x, stored_y, point = stored_as.encode(x), stored_as.encode(y), random.normal(size=4)

    def gradient(task: Any) -> Any:
        """Of the loss that `halves` has for the task, along each axis; it is quadratic, so this is exact."""

        def loss(at: Any) -> float:
            residual = stored_x[task.point] @ at - stored_y[task.point]
            return float(halves(residual.real, residual.imag)[task.second])

        return np.array([(loss(point + step) - loss(point - step)) / 2 for step in np.eye(4)])

    order = [messages(work)[place] for place in random.permutation(len(messages(work)))]
    _, decoded = first_enough(work, order)
    total = np.zeros(4)
    for term in decoded.terms:
        worker, _ = order[term.place]
        came = value(work, order[term.place], [gradient(task) for task in work.tasks[worker]])
        total += np.asarray(term.weights) @ came
    wanted = sum(one.T @ (one @ point - of) for one, of in zip(x, y, strict=True)) / work.shards
    np.testing.assert_allclose(total / decoded.divisor, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("mds", 4, 2), "none of uncoded, gradient_code"),
        (("nested", 4, 2, 0.9), "does not go with the code 'nested'"),
        (("uncoded", 4, 2, 0.0), "above 0"),
        (("hybrid", 4, 5), "load=5"),
        (("lagrange", 4, 1), "7 values are needed"),
        (("lagrange, one message", 4, 0), "load=0"),
    ],
)
def test_what_cannot_be_is_refused(args: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        work_of(*args)
