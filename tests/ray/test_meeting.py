"""Objects of a Ray job: refs travel between driver, tasks and actors; a sum outlives a killed actor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.ray.driver import Driver

LARGE = 1 << 18
# Processes of Ray take seconds to import what they need, and many more on a busy machine.
pytestmark = pytest.mark.timeout(600)


class Source:
    """An actor that puts."""

    def put(self, value: float, ref: Any = None) -> Any:
        import tweed.ray

        return tweed.ray.put(np.full(LARGE, value, np.float32), ref)

    async def value(self, refs: list[Any]) -> tuple[float, bool]:
        """The first element of what it gets, and whether it has torch."""
        import sys

        import tweed.ray

        (ref,) = refs
        array = await tweed.ray.get(ref, timeout=60)
        return float(array[0]), "torch" in sys.modules


def read(refs: list[Any]) -> float:
    import tweed.ray

    return float(np.sum([tweed.ray.get(ref, timeout=60).result()[0] for ref in refs]))


def everything() -> dict[str, Any]:
    """What came of it, in the driver."""
    import ray

    import tweed.ray

    actor, task = ray.remote(Source), ray.remote(read)
    sources: list[Any] = [
        actor.options(num_cpus=0.5, scheduling_strategy="SPREAD").remote() for _ in range(3)
    ]
    own = tweed.ray.put(np.full(LARGE, 10.0, np.float32))
    found: dict[str, Any] = {"own": ray.get([source.value.remote([own]) for source in sources])}
    refs = ray.get([source.put.remote(2.0**rank) for rank, source in enumerate(sources)])
    sums = tweed.ray.reduce(refs, timeout=60)
    found["everywhere"] = ray.get([source.value.remote([sums.ref]) for source in sources])
    found["sum"] = (float(sums.result().array[0]), sums.result().refs == set(refs))
    found["task"] = ray.get(task.options(num_cpus=0.2).remote(refs))
    later = [tweed.ray.Ref.new() for _ in range(3)]
    halved = tweed.ray.reduce(later, 2, timeout=60)
    ray.get(sources[0].put.remote(1.0, later[0]))
    ray.kill(sources[0])
    ray.get([source.put.remote(4.0, ref) for source, ref in zip(sources[1:], later[1:], strict=True)])
    done = halved.result()
    found["killed"] = (float(done.array[0]), len(done.refs), later[0] in done.refs)
    for source in sources[1:]:
        ray.kill(source)
    return found


@pytest.fixture(scope="module")
def found(driver: Driver) -> dict[str, Any]:
    """What `everything` found; its actors start once."""
    return dict(driver(everything))


def test_refs_travel_through_tasks_and_actors_without_torch(found: dict[str, Any]) -> None:
    assert found["own"] == [(10.0, False)] * 3
    assert found["task"] == 7.0


def test_a_sum_is_there_for_all(found: dict[str, Any]) -> None:
    assert found["sum"] == (7.0, True)
    assert [value for value, _ in found["everywhere"]] == [7.0] * 3


def test_an_actor_that_is_killed_leaves_the_sum_of_the_ids_reported(found: dict[str, Any]) -> None:
    value, count, has_dead = found["killed"]
    assert count == 2 and value == (5.0 if has_dead else 8.0)


class Store:
    """As Ray's key-value store."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def _internal_kv_put(self, key: str, value: str, overwrite: bool, *, namespace: str) -> None:
        if overwrite or key not in self.values:
            self.values[key] = value.encode()

    def _internal_kv_get(self, key: str, *, namespace: str) -> bytes | None:
        return self.values.get(key)

    def _internal_kv_list(self, prefix: str, *, namespace: str) -> list[bytes]:
        return [key.encode() for key in self.values if key.startswith(prefix)]

    def _internal_kv_del(self, key: str, *, del_by_prefix: bool, namespace: str) -> None:
        self.values = {
            known: value
            for known, value in self.values.items()
            if known != key and not (del_by_prefix and known.startswith(key))
        }


def test_newcomers_meet_all_who_live_whoever_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'WHEEL[ray]'")
    from tweed.ray import job, meeting

    store = Store()
    context = SimpleNamespace(get_job_id=lambda: "07", worker=SimpleNamespace(mode=None))
    monkeypatch.setattr(job, "internal_kv", store)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setenv("TWEED_HOST", "127.0.0.1")
    first, second = (meeting._join(1 << 20) for _ in range(2))
    ref = second.put(np.arange(3))
    first.close()  # whatever the first one has made is of no use to the others now
    with second, meeting._join(1 << 20) as third:
        assert third.get(ref, timeout=20).result().tolist() == [0, 1, 2]
        alive = {process.descriptor.hex() for process in (second, third)}
        assert set(job.names("objects/")) == alive
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    meeting._end()
    assert list(store.values) == ["07/job/secret"]
