"""Ray Direct Transport over tweed: tensors of all kinds behind Ray's refs, from actors and driver."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ray.driver import Driver

LARGE = 1 << 18
# Processes of Ray take seconds to import what they need, and many more on a busy machine.
pytestmark = pytest.mark.timeout(600)


def kinds() -> dict[str, torch.Tensor]:
    """Tensors of all dtypes, sizes and layouts that a transport could trip over."""
    return {
        "large": torch.arange(LARGE, dtype=torch.float32),
        "half": torch.linspace(0, 1, 7, dtype=torch.bfloat16),
        "bools": torch.tensor([True, False, True]),
        "complex": torch.tensor([1 + 2j]),
        "number": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.empty(0, 3),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "turned": torch.arange(6).reshape(2, 3).t(),
        "trained": torch.ones(3, requires_grad=True).detach(),
    }


class Holder:
    """An actor that makes tensors and takes those of others."""

    def __init__(self) -> None:
        self.own = torch.full((LARGE,), 1.0)

    def give(self) -> dict[str, torch.Tensor]:
        return kinds()

    def give_own(self) -> torch.Tensor:
        return self.own

    def change(self) -> None:
        self.own += 1

    def take(self, found: dict[str, torch.Tensor]) -> list[str]:
        """The names of those that came otherwise than they were."""
        return [name for name, tensor in kinds().items() if not torch.equal(tensor, found[name])]

    def take_own(self, found: torch.Tensor) -> tuple[float, float]:
        found += 1  # it is this actor's alone
        return found.min().item(), found.max().item()

    def used(self) -> int:
        import tweed.ray

        return tweed.ray.open_objects().used


def everything() -> dict[str, Any]:
    """What came of it, in the driver."""
    import ray
    from ray.experimental import set_target_for_ref

    import tweed.ray

    tweed.ray.register_tensor_transport()
    tweed.ray.register_tensor_transport()
    marked: Any = type("Marked", (Holder,), {})
    for name in ("give", "give_own"):
        setattr(marked, name, ray.method(tensor_transport="tweed")(getattr(Holder, name)))
    actor: Any = ray.remote(enable_tensor_transport=True)(marked)
    holders = [actor.options(num_cpus=0.5, scheduling_strategy="SPREAD").remote() for _ in range(3)]
    first, *others = holders
    found: dict[str, Any] = {}
    ref = first.give.remote()
    found["to actors"] = ray.get([other.take.remote(ref) for other in others])
    got = ray.get(ref)
    found["to the driver"] = [name for name, tensor in kinds().items() if not torch.equal(tensor, got[name])]
    own = first.give_own.remote()
    ray.get(first.change.remote())
    found["after a change"] = ray.get([other.take_own.remote(own) for other in others])
    buffer = torch.zeros(LARGE)
    set_target_for_ref(own, [buffer])
    found["in place"] = (ray.get(own).data_ptr() == buffer.data_ptr(), buffer.unique().tolist())
    put = ray.put(torch.full((LARGE,), 7.0), _tensor_transport="tweed")
    found["put"] = ray.get([other.take_own.remote(put) for other in others])
    found["held"] = ray.get(first.used.remote()) > 0
    del ref, own, put, got
    found["freed"] = _becomes(lambda: ray.get([holder.used.remote() for holder in holders]), [0, 0, 0])
    for holder in holders:
        ray.kill(holder)
    return found


def _becomes(look: Any, wanted: Any) -> bool:
    """Ray frees in its own time; the test's limit ends the wait."""
    while look() != wanted:
        pass
    return True


@pytest.fixture(scope="module")
def found(driver: Driver) -> dict[str, Any]:
    """What `everything` found; its actors start once."""
    return dict(driver(everything))


def test_tensors_of_all_kinds_come_as_they_were(found: dict[str, Any]) -> None:
    assert found["to actors"] == [[], []]
    assert found["to the driver"] == []


def test_what_is_changed_after_the_task_does_not_change_what_others_get(found: dict[str, Any]) -> None:
    assert found["after a change"] == [(2.0, 2.0), (2.0, 2.0)]


def test_tensors_come_into_memory_that_is_there(found: dict[str, Any]) -> None:
    assert found["in place"] == (True, [1.0])


def test_the_driver_puts(found: dict[str, Any]) -> None:
    assert found["put"] == [(8.0, 8.0), (8.0, 8.0)]


def test_when_no_ref_is_left_the_memory_is_free(found: dict[str, Any]) -> None:
    assert found["held"] and found["freed"]
