"""The table of what can be measured. A new part is a function that gives rows, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench import (
    admission,
    aggregates,
    behind_nat,
    builders,
    collectives,
    emulator,
    factors,
    fitting,
    flower,
    footprint,
    hub_links,
    live_hub,
    loops,
    ltp,
    memory,
    neighbours,
    networks,
    on_ray,
    quant,
    regrouped,
    schedules,
    shared,
    sparse,
    tasks,
    training,
    virtual_hub,
)
from bench.run import Row

Part = Callable[[], Iterable[Row]]

FULL: dict[str, Part] = {
    "all_reduce": lambda: collectives.all_reduces(collectives.FULL),
    "others": lambda: collectives.others(collectives.FULL),
    "tcp": lambda: collectives.over_tcp(collectives.FULL),
    "networks": lambda: networks.all_reduces(networks.FULL),
    "emulator": lambda: emulator.checks(emulator.FULL),
    "ltp": lambda: ltp.messages(ltp.FULL),
    "shared": lambda: shared.flows(shared.FULL),
    "training": lambda: training.steps(4, training.FULL),
    "factors": lambda: factors.steps(factors.FULL),
    "memory": lambda: footprint.extra((25 << 20, 100 << 20)),
    "strangers": lambda: admission.besieged(admission.FULL),
    "kernels": memory.kernels,
    "sparse": sparse.rows,
    "quantise": quant.rows,
    "aggregates": aggregates.rows,
    "virtual hub": lambda: virtual_hub.rows((100, 1000, virtual_hub.MEMBERS)),
    "flower": flower.rows,
    "hub links": hub_links.rows,
    "ray": on_ray.rows,
    "live hub": lambda: live_hub.rows(live_hub.FULL),
    "reconfigure": lambda: regrouped.rows(regrouped.FULL),
    "behind NAT": lambda: behind_nat.rows(behind_nat.FULL),
    "neighbours": lambda: neighbours.rows(neighbours.FULL),
    "loops": lambda: loops.rows(loops.FULL),
    "tasks": lambda: tasks.rows(tasks.FULL),
    "schedules": lambda: schedules.built((8, 64, 512)),
    "simulator": lambda: schedules.events((8, 64, 512)),
    "builders": lambda: builders.built(builders.FULL),
    "fitted": lambda: fitting.measured(fitting.FULL),
}

#: The same in two minutes, for a look; the kernels and LTP's measuring program would have to be built.
QUICK: dict[str, Part] = {
    "all_reduce": lambda: collectives.all_reduces(collectives.QUICK),
    "others": lambda: collectives.others(collectives.QUICK),
    "tcp": lambda: collectives.over_tcp(collectives.QUICK),
    "networks": lambda: networks.all_reduces(networks.QUICK),
    "emulator": lambda: emulator.checks(emulator.QUICK),
    "ltp": lambda: ltp.messages(ltp.QUICK),
    "shared": lambda: shared.flows(shared.QUICK),
    "training": lambda: training.steps(4, training.QUICK),
    "factors": lambda: factors.steps(factors.QUICK),
    "memory": lambda: footprint.extra((25 << 20,)),
    "strangers": lambda: admission.besieged(admission.QUICK),
    "schedules": lambda: schedules.built((8, 64)),
    "simulator": lambda: schedules.events((8, 64)),
    "virtual hub": lambda: virtual_hub.rows((100, 1000), 5000),
    "live hub": lambda: live_hub.rows(live_hub.QUICK),
    "reconfigure": lambda: regrouped.rows(regrouped.QUICK),
    "neighbours": lambda: neighbours.rows(neighbours.QUICK),
    "tasks": lambda: tasks.rows(tasks.QUICK),
    "builders": lambda: builders.built(builders.QUICK),
    "fitted": lambda: fitting.measured(fitting.QUICK),
}
