"""MultiTree (Huang et al., ISCA 2021): one tree per rank, grown together so that no two want a link at once.

Parts: the builder `multitree`; its baselines and successors are rows of the same table. Times are simulated.

The paper's claim: on an 8x8 torus all-reduces of real models are 2.3 times as fast as over a ring and 1.56
times as fast as over a 2D ring; small messages gain on switches too. The experiment has the paper's networks,
links and sizes, puts every builder that fits beside it, and shows how far each is from what the links allow.

schedules   schedules on networks: times, bounds, growth
report      tables and plots; goals are in report_goals, bounds in report_bounds
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tweed.collective.builder import Builder
from tweed.collective.chooser import fitting
from tweed.report.notes import Notes
from tweed.simulate import models
from tweed.systems import Headline, System
from tweed.systems.multitree.report import study
from tweed.systems.multitree.schedules import (
    ELSEWHERE,
    LARGE,
    NETWORKS,
    PHASES,
    SITED,
    SIZES,
    SMALL,
    TRAINED,
    UNEVEN,
    Cell,
    bounded,
    built,
    grown,
    network,
    straggled,
    timed,
    weak,
)

#: Builders of the paper that are timed with packets, too.
PACKETED = ("ring", "ring_2d", "multitree")
#: Builders that are quick enough for the large tori of weak scaling; with the fewest pieces that they take.
SCALED = ("ring", "ring_2d", "bucket", "double_binary_tree", "multitree", "multitree_split", "time_expanded")
#: All-gathers and reduce-scatters of the first are timed beside the bound; all-reduces of the second by site.
PHASED = ("multitree", "time_expanded", "forest")
JOINED = (*PHASED, "multitree_split", "hierarchy", "double_binary_tree", "ring")
#: Builders that are timed themselves.
BUILT = ("multitree", "time_expanded")


@dataclass(frozen=True, slots=True)
class Config:
    """How much is measured.

    Attributes:
      networks: names in `NETWORKS`.
      elsewhere: names in `ELSEWHERE` and `UNEVEN`.
      sizes: bytes.
      sides: of the tori of weak scaling.
      models: names in `simulate.models.MODELS`.
      seeds: how many draws of slow ranks.
      large: sides of tori on which builders are timed.
    """

    networks: tuple[str, ...]
    elsewhere: tuple[str, ...]
    sizes: tuple[int, ...]
    sides: tuple[int, ...]
    models: tuple[str, ...]
    seeds: int
    large: tuple[int, ...]


FULL = Config(
    tuple(NETWORKS), (*ELSEWHERE, *UNEVEN), SIZES, (4, 6, 8, 12, 16), tuple(models.MODELS), 20, (8, 16, 32)
)
QUICK = Config(("torus 4x4",), ("DGX-1",), (SMALL, LARGE), (4,), (), 2, (4,))


def experiment(notes: Notes, quick: bool) -> None:
    """Measures what is not in the notes.

    Cost: some 10 minutes on one quiet core; quick: seconds.
    """
    config = QUICK if quick else FULL
    for name in (*config.networks, *config.elsewhere):
        bounded(notes, name, LARGE)
        if name in config.networks:
            grown(notes, name)
            _sizes(notes, config, name)
        _beside_bounds(notes, name)
    for side in config.sides:
        name = f"torus {side}x{side}"
        for row in (row for row in fitting("all_reduce", network(name)) if row.name in SCALED):
            timed(notes, _fewest(row), Cell(name, "all_reduce", row.name), [weak(name)])
    for seed in range(config.seeds):
        straggled(notes, TRAINED if TRAINED in config.networks else config.networks[0], 1 << 21, seed)
    for side in config.large:
        for builder in BUILT:
            built(notes, builder, side)


def _fewest(row: Builder) -> Builder:
    return replace(row, pieces=row.pieces[:1])


def _sizes(notes: Notes, config: Config, name: str) -> None:
    """Every builder at every size; where models are trained, with the fewest pieces for their layers too."""
    links, layers = network(name), set[int]()
    if name == TRAINED:
        layers = {layer.numbytes for model in config.models for layer in models.MODELS[model]().layers} - {0}
    for row in fitting("all_reduce", links):
        cell = Cell(name, "all_reduce", row.name)
        timed(notes, row, cell, config.sizes)
        timed(notes, _fewest(row), cell, sorted(layers - set(config.sizes)))
        if links.sides and row.name in PACKETED:
            timed(notes, row, cell._replace(packets=True), sorted({*config.sizes, *layers}))


def _beside_bounds(notes: Notes, name: str) -> None:
    sides = dict.fromkeys(PHASES, PHASED) | ({"all_reduce": JOINED} if name in SITED else {})
    for collective, builders in sides.items():
        for row in (row for row in fitting(collective, network(name)) if row.name in builders):
            timed(notes, row, Cell(name, collective, row.name), [LARGE])


SYSTEM = System(
    "MultiTree, topology-aware all-reduce trees",
    "Huang et al., ISCA 2021",
    'collective.build("all_reduce", "multitree", topology)',
    experiment,
    study,
    headline=Headline(
        "all-reduce 2.2× as fast as a ring, 1.51× as a 2D ring, on an 8x8 torus",
        "{} and {}, simulated",
        (
            "torus 8x8, mean over models: 2.2× over ring, with packets (paper: 7 models, here 4)",
            "torus 8x8, mean over models: 1.51× over ring_2d, with packets (paper: 7 models, here 4)",
        ),
        "Networks of switches or a torus; `tweed plan` picks it where it is best.",
    ),
)
