"""The backend of `ray.util.collective`: every operation, on arrays and tensors, and what it refuses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from tests.ray.driver import Driver

SIZE = 3


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

        g, rank, found = self.name, self.rank, {}

        def own() -> Any:
            array = np.arange(6, dtype=np.float32) + 10 * rank
            return array if kind == "array" else torch.from_numpy(array)

        def blank() -> list[Any]:
            return [own() * 0 for _ in range(self.size)]

        found["sum"] = own()
        c.allreduce(found["sum"], g)
        found["max"] = own()
        c.allreduce(found["max"], g, c.ReduceOp.MAX if hasattr(c, "ReduceOp") else c.types.ReduceOp.MAX)
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

    def leave(self) -> None:
        from ray.util import collective

        collective.destroy_collective_group(self.name)


def members() -> list[Any]:
    import ray

    actor: Any = ray.remote(Member)
    return [actor.options(num_cpus=1, scheduling_strategy="SPREAD").remote() for _ in range(SIZE)]


def everything() -> list[list[dict[str, Any]]]:
    """By kind and rank, what all operations give; in two groups, one after the other."""
    import ray

    actors, found = members(), []
    for kind in ("array", "tensor"):
        ray.get([actor.form.remote(SIZE, rank, kind) for rank, actor in enumerate(actors)])
        found.append(ray.get([actor.all.remote(kind) for actor in actors]))
    refused = ray.get(actors[0].refused.remote())
    assert "read-only" in refused, refused
    ray.get([actor.leave.remote() for actor in actors])
    for actor in actors:
        ray.kill(actor)
    return found


def test_every_operation_gives_what_it_must(driver: Driver) -> None:
    base = np.arange(6, dtype=np.float32)
    for by_rank in driver(everything):
        for rank, found in enumerate(by_rank):
            given = {name: [np.asarray(one) for one in value] if name == "gathered" else np.asarray(value)
                     for name, value in found.items()}  # fmt: skip
            np.testing.assert_array_equal(given["sum"], 3 * base + 30)
            np.testing.assert_array_equal(given["max"], base + 20)
            np.testing.assert_array_equal(given["reduced"], 3 * base + 30 if rank == 1 else base + 10 * rank)
            np.testing.assert_array_equal(given["broadcast"], base + 20)
            np.testing.assert_array_equal(given["gathered"], [base + 10 * other for other in range(SIZE)])
            np.testing.assert_array_equal(given["scattered"], 3 * base + 30 + 3 * rank)
            np.testing.assert_array_equal(given["received"], base if rank == 2 else 0 * base)


def with_a_secret(rank: int, size: int, secret: str | None) -> str:
    """What a task meets that joins with this secret."""
    from tweed.errors import TweedError

    if secret is not None:
        os.environ["TWEED_SECRET"] = secret
    member = Member()
    try:
        member.form(size, rank, "secrets")
    except TweedError as error:
        return str(error)
    return ""


def secrets() -> list[str]:
    import ray

    task: Any = ray.remote(with_a_secret)
    options = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    given = [None, "another sesame, another"]
    return ray.get([task.options(**options).remote(rank, 2, secret) for rank, secret in enumerate(given)])


def test_a_wrong_secret_is_named(driver: Driver) -> None:
    for text in driver(secrets):
        assert "wrong secret" in text and "rank" in text and "sesame" not in text


def alone() -> str:
    import ray

    actor = members()[0]
    try:
        ray.get(actor.form.remote(2, 1, "nobody", timeout_s=0.5))
    except ray.exceptions.RayTaskError as error:
        return str(error.cause)
    finally:
        ray.kill(actor)
    return ""


def test_a_rank_that_does_not_come_is_named(driver: Driver) -> None:
    assert "rank 0 has not come to rank 1, of 2" in driver(alone)
