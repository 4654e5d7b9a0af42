"""Members that are several processes each, over which FSDP2 spreads the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tweed
from tests.elastic.loops import KILLED_AT, STEPS, TOGETHER, Ended, spreads, undisturbed
from tweed.elastic import Elastic
from tweed.errors import UsageError
from tweed.testbed import Ended as Ends
from tweed.testbed import Failed, Ranks


def outcomes(size: int, dies: dict[int, int], **options: Any) -> dict[int, Any]:
    """By rank, what each that was not killed has come to."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    killed, found = {rank for rank, at in dies.items() if at > 0}, dict[int, Any]()
    with Ranks(spreads, size, store.port, dies, options) as ranks:
        while len(found) + len(killed) < size:
            events = ranks.poll(60)
            assert events, f"no end of ranks {ranks.running()}"
            assert not [one for one in events if isinstance(one, Failed) and one.rank not in killed], events
            found |= {one.rank: one.value for one in events if isinstance(one, Ends)}
    return found


def test_the_model_is_that_of_one_process_and_all_of_a_sharded_member_do_what_is_first() -> None:
    found = list(outcomes(4, {}).values())
    assert all(isinstance(one, Ended) and one.steps_done == STEPS for one in found), found
    assert len({one.digest for one in found}) == 1
    assert torch.allclose(found[0].flat, undisturbed(STEPS), rtol=0, atol=1e-12)
    assert sorted(one.iterations for one in found) == [0, 0, STEPS, STEPS]


@pytest.mark.parametrize("look", ["roots", "scaled"])
def test_layers_that_are_spread_one_by_one_are_trained_and_so_under_a_gradient_scaler(look: str) -> None:
    found = list(outcomes(4, {}, **{look: True}).values())
    assert all(isinstance(one, Ended) and one.steps_done == STEPS for one in found), found
    assert torch.allclose(found[0].flat, undisturbed(STEPS), rtol=0, atol=1e-12)


def test_who_leaves_its_loop_alone_ends_its_sharded_member_and_is_told() -> None:
    found = outcomes(6, {}, breaks=3)
    assert isinstance(found[2], str) and "end their loops at one step" in found[3]
    for rank in (0, 1, 4, 5):
        assert isinstance(found[rank], Ended) and found[rank].steps_done == STEPS, found


@pytest.mark.parametrize(("victim", "at_most"), [(0, None), (3, 1)])
def test_with_one_process_its_whole_sharded_member_is_lost(victim: int, at_most: int | None) -> None:
    found = outcomes(6, {victim: KILLED_AT}, at_most=at_most)
    assert "was lost during" in found.pop(victim ^ 1)
    assert all(isinstance(one, Ended) and one.steps_done == STEPS for one in found.values()), found
    assert len({one.digest for one in found.values()}) == 1
    assert all(one.epochs == [1, 2] for one in found.values())
    assert torch.allclose(found[5].flat, undisturbed(STEPS), rtol=0, atol=1e-12)


def test_a_sharded_member_leaves_when_one_of_its_processes_is_asked_to() -> None:
    found = outcomes(4, {3: -KILLED_AT})
    assert all(KILLED_AT < found[rank].steps_done < STEPS for rank in (2, 3)), found
    assert found[2].digest == found[3].digest and found[0].digest == found[1].digest
    for one in found.values():
        assert torch.allclose(one.flat, undisturbed(one.steps_done), rtol=0, atol=1e-12)


def test_a_sharded_member_joins() -> None:
    found = list(outcomes(6, {}, founders=2).values())
    assert all(isinstance(one, Ended) for one in found), found
    assert len({(one.digest, one.steps_done) for one in found}) == 1
    assert found[0].steps_done > TOGETHER
    assert torch.allclose(found[0].flat, undisturbed(found[0].steps_done), rtol=0, atol=1e-12)


@pytest.mark.parametrize("strategy", ["top_k:0.5", "powersgd:1"])
def test_shards_go_as_packets(strategy: str) -> None:
    found = outcomes(6, {4: KILLED_AT}, strategy=strategy)
    found.pop(5)
    assert all(isinstance(one, Ended) and one.steps_done == STEPS for one in found.values()), found
    assert len({one.digest for one in found.values()}) == 1
    assert 1e-6 < (found[0].flat - undisturbed(STEPS)).abs().max() < 1.0  # rounded, and little


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("mesh", "words"),
    [(None, "'weight' is not spread"), ((1, 1), r"a mesh of shape \(1, 1\).*one dimension over all")],
)
def test_what_is_no_sharded_member_is_told(mesh: tuple[int, ...] | None, words: str) -> None:
    model = nn.Linear(2, 2)
    if mesh is not None:
        fully_shard(model, mesh=init_device_mesh("cpu", mesh, mesh_dim_names=("outer", "inner")))
    with pytest.raises(UsageError, match=words):
        tweed.attach(model, torch.optim.SGD(model.parameters()), elastic=Elastic(1, 2))
