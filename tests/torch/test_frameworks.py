"""What users run unchanged: DDP, FSDP2, DTensor, device meshes, functional collectives, torch.compile."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.torch.naive import Case, check, failures_of
from tweed.testbed import run_ranks

CASES: dict[str, Case] = {}


def case(fn: Case) -> Case:
    CASES[fn.__name__] = fn
    return fn


def run_cases(rank: int, size: int) -> dict[str, str]:
    return failures_of(CASES, rank, size)


def batch(rank: int, size: int) -> tuple[Tensor, Tensor]:
    """This rank's share of one batch that all ranks know, and the whole."""
    whole = torch.randn(size * 6, 8, generator=torch.Generator().manual_seed(1))
    return whole[rank * 6 :][:6], whole


def trained(model: nn.Module, data: Tensor) -> list[Tensor]:
    """Parameters after two steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return [full(parameter) for parameter in model.parameters()]


def full(parameter: Tensor) -> Tensor:
    found = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return found.detach()


def trains_as_alone(rank: int, size: int, wrap: Callable[[nn.Module], nn.Module]) -> None:
    """The ranks' model, each with its share, against one model with the whole batch."""
    mine, whole = batch(rank, size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    alone = trained(copy.deepcopy(model), whole)
    torch.testing.assert_close(trained(wrap(model), mine), alone)


@case
def ddp(rank: int, size: int) -> None:
    trains_as_alone(rank, size, nn.parallel.DistributedDataParallel)


@case
def ddp_with_hook(rank: int, size: int) -> None:
    def mean(state, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are strings
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0].div_(size))

    def wrap(model: nn.Module) -> nn.Module:
        parallel = nn.parallel.DistributedDataParallel(model)
        parallel.register_comm_hook(None, mean)
        return parallel

    trains_as_alone(rank, size, wrap)


@case
def fsdp2(rank: int, size: int) -> None:
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Module) -> nn.Module:
        mesh = dist.init_device_mesh("cpu", (size,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    trains_as_alone(rank, size, wrap)


@case
def fsdp2_in_the_backends_memory(rank: int, size: int) -> None:
    """FSDP2 asks the group for its buffers; gradients are divided by the reduction itself."""
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Module) -> nn.Module:
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (size,)))
        model.set_allocate_memory_from_process_group_for_comm(True)
        model.set_gradient_divide_factor(float(size))
        return model

    trains_as_alone(rank, size, wrap)


@case
def dtensor(rank: int, size: int) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("cpu", (size,))
    whole = torch.arange(size * 4 * size * 2.0).reshape(size * 4, size * 2)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    torch.testing.assert_close(rows.full_tensor(), whole)
    columns = rows.redistribute(mesh, [Shard(1)])
    torch.testing.assert_close(columns.to_local(), whole.chunk(size, dim=1)[rank])
    product = (rows.t() @ rows).redistribute(mesh, [Replicate()])
    torch.testing.assert_close(product.to_local(), whole.t() @ whole)


@case
def mesh_of_two_dimensions(rank: int, size: int) -> None:
    mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("outer", "inner"))
    for name in ("outer", "inner"):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=mesh.get_group(name))
        torch.testing.assert_close(tensor, torch.full((3,), float(mesh[name].size())))


@case
def functional(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    tensor = torch.full((size, 2), float(rank))
    total = size * (size - 1) / 2
    torch.testing.assert_close(funcol.all_reduce(tensor, "sum", group).wait(), torch.full((size, 2), total))
    torch.testing.assert_close(
        funcol.reduce_scatter_tensor(tensor, "sum", 0, group).wait(), torch.full((1, 2), total)
    )
    gathered = funcol.all_gather_tensor(torch.full((1, 2), float(rank)), 0, group).wait()
    torch.testing.assert_close(gathered, torch.arange(float(size)).unsqueeze(1).expand(size, 2).contiguous())
    swapped = funcol.all_to_all_single(tensor, None, None, group).wait()
    torch.testing.assert_close(swapped, gathered)
    several = funcol.all_reduce_coalesced([tensor, tensor * 2], "sum", group)
    torch.testing.assert_close(several[1].wait(), torch.full((size, 2), 2 * total))


@case
def compiled(rank: int, size: int) -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(tensor: Tensor) -> Tensor:
        doubled = tensor * 2
        dist.all_reduce(doubled)
        return doubled + 1

    torch.testing.assert_close(step(torch.ones(4)), torch.full((4,), 2.0 * size + 1))


@pytest.fixture(scope="module", params=[("native", ""), ("native", "DETAIL"), ("python", "")], ids="-".join)
def failures(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """Each rank's failures by case."""
    binding, debug = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWEED_BINDING", binding)
        if debug:
            patch.setenv("TORCH_DISTRIBUTED_DEBUG", debug)
        return run_ranks(run_cases, 2, backend="tweed")


@pytest.mark.parametrize("name", CASES)
def test_unchanged(name: str, failures: list[dict[str, str]]) -> None:
    check(name, failures)
