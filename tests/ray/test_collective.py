"""The backend of `ray.util.collective`: every operation, on arrays and tensors, and what it refuses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from tests.ray.driver import Driver

SIZE = 3
# Processes of Ray take seconds to import what they need, and many more on a busy machine.
pytestmark = pytest.mark.timeout(600)


class Member:
    """An actor that takes part in groups."""

    def form(self, size: int, rank: int, name: str, timeout_s: float = 60.0) -> None:
        from ray.util import collective

        from tweed import ray as on_ray

        self.rank, self.size, self.name = rank, size, name
        on_ray.register_collective_backend(timeout_s)
        collective.init_collective_group(size, rank, "tweed", name)

    def all(self, kind: str) -> dict[str, Any]:
        """What each operation gives here."""
        from ray.util import collective as c
        from ray.util.collective.types import ReduceOp

        g, rank, found = self.name, self.rank, {}

        def own() -> Any:
            array = np.arange(6, dtype=np.float32) + 10 * rank
            return array if kind == "array" else torch.from_numpy(array)

        def blank() -> list[Any]:
            return [own() * 0 for _ in range(self.size)]

        found["sum"] = own()
        c.allreduce(found["sum"], g)
        found["max"] = own()
        c.allreduce(found["max"], g, ReduceOp.MAX)
        found["reduced"] = own()
        c.reduce(found["reduced"], 1, g)
        found["broadcast"] = own()
        c.broadcast(found["broadcast"], 2, g)
        found["gathered"] = blank()
        c.allgather(found["gathered"], own(), g)
        found["scattered"] = own() * 0
        c.reducescatter(found["scattered"], [own() + index for index in range(self.size)], g)
        found["received"] = own() * 0
        if rank == 0:
            c.send(own(), 2, g)
        elif rank == 2:
            c.recv(found["received"], 0, g)
        c.barrier(g)
        return found

    def refused(self) -> str:
        """What a read-only array meets."""
        import ray
        from ray.util import collective

        array = ray.get(ray.put(np.ones(20_000)))
        try:
            collective.allreduce(array, self.name)
        except ValueError as error:
            return str(error)
        return ""

    def fail(self, size: int, rank: int, name: str, secret: str | None, timeout_s: float = 60.0) -> str:
        """What it meets that joins a group with this secret."""
        from tweed.errors import TweedError

        if secret is not None:
            os.environ["TWEED_SECRET"] = secret
        try:
            self.form(size, rank, name, timeout_s)
        except TweedError as error:
            return str(error)
        return ""

    def leave(self) -> None:
        from ray.util import collective

        collective.destroy_collective_group(self.name)


def everything() -> list[Any]:
    """By kind and rank what all operations give, in groups of their own; then what is met by wrong use."""
    import ray

    member: Any = ray.remote(Member)
    actors = [member.options(num_cpus=1, scheduling_strategy="SPREAD").remote() for _ in range(SIZE)]
    found = []
    for kind in ("array", "tensor"):
        ray.get([actor.form.remote(SIZE, rank, kind) for rank, actor in enumerate(actors)])
        found.append(ray.get([actor.all.remote(kind) for actor in actors]))
        if kind == "tensor":
            refused = ray.get(actors[0].refused.remote())
        ray.get([actor.leave.remote() for actor in actors])
    given = [None, "another sesame, another"]
    secrets = [actor.fail.remote(2, rank, "secrets", given[rank]) for rank, actor in enumerate(actors[:2])]
    alone = actors[2].fail.remote(2, 1, "nobody", None, 0.5)
    found += [refused, ray.get(secrets), ray.get(alone)]
    for actor in actors:
        ray.kill(actor)
    return found


@pytest.fixture(scope="module")
def found(driver: Driver) -> list[Any]:
    """What `everything` found; its actors start once."""
    return list(driver(everything))


@pytest.mark.parametrize("kind", [0, 1], ids=["arrays", "tensors"])
def test_every_operation_gives_what_it_must(found: list[Any], kind: int) -> None:
    base = np.arange(6, dtype=np.float32)
    for rank, by_name in enumerate(found[kind]):
        given = {
            name: np.stack(value) if name == "gathered" else np.asarray(value)
            for name, value in by_name.items()
        }
        np.testing.assert_array_equal(given["sum"], 3 * base + 30)
        np.testing.assert_array_equal(given["max"], base + 20)
        np.testing.assert_array_equal(given["reduced"], 3 * base + 30 if rank == 1 else base + 10 * rank)
        np.testing.assert_array_equal(given["broadcast"], base + 20)
        np.testing.assert_array_equal(given["gathered"], [base + 10 * other for other in range(SIZE)])
        np.testing.assert_array_equal(given["scattered"], 3 * base + 30 + 3 * rank)
        np.testing.assert_array_equal(given["received"], base if rank == 2 else 0 * base)


def test_a_result_does_not_go_into_a_read_only_array(found: list[Any]) -> None:
    assert "read-only" in found[2] and "copy it" in found[2]


def test_a_wrong_secret_is_named(found: list[Any]) -> None:
    for text in found[3]:
        assert "wrong secret" in text and "rank" in text and "sesame" not in text


def test_a_rank_that_does_not_come_is_named(found: list[Any]) -> None:
    assert "rank 0 has not come to rank 1, of 2" in found[4]
