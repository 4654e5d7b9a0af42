"""Every pattern in real ranks: what the checker proved is what the engine does, on both kinds of link."""

from __future__ import annotations

import pytest

from tweed.collective import COLLECTIVES, builders
from tweed.testbed import run_ranks

PATTERNS = [row.patterns[name] for name in COLLECTIVES for row in builders(name) if name in row.patterns]
NAMES = sorted({row.name for row in PATTERNS})
SIZES = (1, 7, 40_001)


def overrules(name: str) -> dict[str, str]:
    return {row.collective: name for row in PATTERNS if row.name == name and not row.equal_parts}


def run_all(rank: int, size: int, transport: str, store: str) -> list[str]:
    """What came out wrong, over all builders; one start of ranks for all of them."""
    import torch.distributed as dist

    from tweed.torch import Options

    wrong = []
    for name in NAMES:
        options = Options(transport=transport, schedule=overrules(name))  # type: ignore[arg-type]
        place = {"init_method": f"file://{store}/{name}", "rank": rank, "world_size": size}
        dist.init_process_group("tweed", pg_options=options, **place)
        for numel in SIZES:
            wrong += [f"{name} {what} of {numel}" for what in wrong_results(rank, size, numel)]
        dist.destroy_process_group()
    return wrong


def wrong_results(rank: int, size: int, numel: int) -> list[str]:
    import torch
    import torch.distributed as dist

    inputs = [torch.arange(numel, dtype=torch.float64) + 1000 * other for other in range(size)]
    total = torch.stack(inputs).sum(0)
    mine, parts = inputs[rank], [inputs[rank] + part for part in range(size)]
    empty = [torch.zeros_like(mine) for _ in range(size)]
    checks = {}

    dist.all_reduce(summed := mine.clone())
    checks["all_reduce"] = torch.equal(summed, total)
    dist.reduce_scatter(part := torch.zeros_like(mine), parts)
    checks["reduce_scatter"] = torch.equal(part, total + size * rank)
    dist.all_gather(gathered := [t.clone() for t in empty], mine)
    checks["all_gather"] = all(map(torch.equal, gathered, inputs))
    dist.all_to_all(swapped := [t.clone() for t in empty], parts)
    checks["all_to_all"] = all(map(torch.equal, swapped, [t + rank for t in inputs]))
    for root in range(size):
        at_root = rank == root
        dist.broadcast(copied := mine.clone(), root)
        checks[f"broadcast from {root}"] = torch.equal(copied, inputs[root])
        dist.reduce(reduced := mine.clone(), root)
        checks[f"reduce to {root}"] = not at_root or torch.equal(reduced, total)
        dist.gather(mine, gathered if at_root else None, root)
        checks[f"gather to {root}"] = not at_root or all(map(torch.equal, gathered, inputs))
        dist.scatter(scattered := torch.zeros_like(mine), inputs if at_root else None, root)
        checks[f"scatter from {root}"] = torch.equal(scattered, mine)
    return [what for what, right in checks.items() if not right]


@pytest.mark.parametrize(("transport", "size"), [("shm", 2), ("shm", 5), ("tcp", 3)])
def test_every_builder_runs(transport: str, size: int, tmp_path: object) -> None:
    assert run_ranks(run_all, size, transport, str(tmp_path)) == [[]] * size
