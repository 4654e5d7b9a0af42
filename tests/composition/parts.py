"""Every part that a user may name, stage by stage, and which of them go together.

python -m tests.composition.parts            writes docs/composition.md
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tweed.aggregate import Krum, Mean, TrimmedMean
from tweed.cadence import (
    Deferred,
    EventTriggered,
    EveryStep,
    Intermittent,
    LocalSteps,
    Moves,
    Nesterov,
    Ordered,
    ServerPolicy,
)
from tweed.collective import Server
from tweed.compress import (
    Auto,
    Chain,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LazyAggregation,
    Levels,
    LocalResidual,
    LowRank,
    Nonzero,
    Nothing,
    Quantise,
    RandomBlocks,
    RandomK,
    RandomTensors,
    Sign,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.errors import StrategyError, UsageError
from tweed.rng import uniform
from tweed.strategy import Strategy

PAGE = Path(__file__).parents[2] / "docs/composition.md"

#: Of each stage the parts by their names on the page. A new part joins by adding a row.
STAGES: dict[str, dict[str, Any]] = {
    "exchange": {kind: kind for kind in ("gradient", "factors", "step", "difference", "model")},
    "cadence": {
        "EveryStep": EveryStep(),
        "Deferred": Deferred(),
        "LocalSteps": LocalSteps(2),
        "LocalSteps, outer": LocalSteps(2, outer=Nesterov()),
        "LocalSteps, delay": LocalSteps(2, delay=1, fragments=2),
        "EventTriggered": EventTriggered(Moves(0.01)),
        "Intermittent": Intermittent(probability=0.5),
        "Ordered": Ordered(ServerPolicy(share=0.0)),
    },
    "memory": {
        "none": lambda codec: codec,
        "Direct": Direct,
        "ErrorFeedback": ErrorFeedback,
        "ErrorReset": lambda codec: ErrorReset(codec, codec, 2),
        "StepAhead": lambda codec: StepAhead(codec, average_every=2),
        "LazyAggregation": LazyAggregation,
        "LocalResidual": LocalResidual,
        "Auto": lambda codec: Auto((codec,)),
    },
    "codec": {
        "none": None,
        "Identity": Identity(),
        "Identity, by ranges": Identity(by_ranges=True),
        "Half": Half(),
        "TopK": TopK(0.1),
        "TopK, bidirectional": TopK(0.1, bidirectional=True),
        "Threshold": Threshold(0.1),
        "RandomK": RandomK(0.2),
        "RandomK, scaled": RandomK(0.2, scaled=True),
        "RandomBlocks": RandomBlocks(4, block=16),
        "Quantise": Quantise(8, 64),
        "Quantise, nearest": Quantise(4, 64, nearest=True),
        "Levels": Levels(3, 64),
        "Sign": Sign(64),
        "LowRank": LowRank(2),
        "Nonzero": Nonzero(),
        "RandomTensors": RandomTensors(0.3),
        "Nothing": Nothing(),
        "Chain": Chain(TopK(0.2), Quantise(8, 64, nearest=True)),
    },
    "owner": {"every rank": None, "server": Server(0)},
    "transport": {"streams": None, "LTP": "ltp"},
    "aggregate": {"Mean": Mean(), "TrimmedMean": TrimmedMean(0.34), "Krum": Krum(0.34)},
}

#: A name per stage, in their order.
Names = tuple[str, ...]


def combine(names: Names) -> Strategy | None:
    """The strategy of these parts; None if there is nothing to ask for, as a memory without a codec.

    Raises: StrategyError if they are refused.
    """
    exchange, cadence, memory, codec, owner, transport, aggregate = (
        STAGES[stage][name] for stage, name in zip(STAGES, names, strict=True)
    )
    if (codec is None) and names[2] != "none":
        return None
    compress = None if codec is None else memory(codec)
    return Strategy(exchange, cadence, compress, None, owner, transport, aggregate)


def accepted() -> Iterator[tuple[Names, Strategy]]:
    """All combinations that are not refused."""
    for names in itertools.product(*STAGES.values()):
        try:
            strategy = combine(names)
        except (StrategyError, UsageError):
            continue
        if strategy is not None:
            yield names, strategy


def pairs(names: Names) -> list[tuple[str, str]]:
    """The pairs of parts in a combination, each as "stage: part"."""
    return list(itertools.combinations([f"{s}: {n}" for s, n in zip(STAGES, names, strict=True)], 2))


def covering(combinations: Mapping[Names, Strategy]) -> list[Names]:
    """Few combinations in which every pair of parts occurs that occurs in any: the most new pairs first,
    of a sample drawn at each turn."""
    left = {pair for names in combinations for pair in pairs(names)}
    by_pair: dict[tuple[str, str], list[Names]] = {}
    for names in combinations:
        for pair in pairs(names):
            by_pair.setdefault(pair, []).append(names)
    chosen: list[Names] = []
    while left:
        rarest = min(sorted(left), key=lambda pair: len(by_pair[pair]))
        fitting = by_pair[rarest]
        drawn = [fitting[int(uniform(7, len(chosen), n) * len(fitting))] for n in range(50)]
        best = max(drawn, key=lambda names: sum(pair in left for pair in pairs(names)))
        chosen.append(best)
        left -= set(pairs(best))
    return chosen


def page(combinations: Iterable[Names]) -> str:
    """The matrix: for each pair of parts, in how many combinations it occurs."""
    found = list(combinations)
    count = Counter(pair for names in found for pair in pairs(names))
    parts = [f"{stage}: {name}" for stage, names in STAGES.items() for name in names]
    asked = sum(
        1 for names in itertools.product(*STAGES.values()) if names[2] == "none" or names[3] != "none"
    )
    text = [
        "# What goes together",
        "",
        "`python -m tests.composition.parts` writes this page from what `tweed.Strategy` accepts.",
        "A combination has one part of each stage: what is exchanged, cadence (when ranks exchange), memory",
        "(what keeps the values that a codec leaves out), codec (the form in which values are sent), owner",
        "of ranges (who aggregates them), transport, aggregate (the rule that combines contributions).",
        f"**{len(found):,} of {asked:,} combinations are accepted.** An error refuses each of the others;",
        "it names two parts and the reason. `Median`, `MeanAroundMedian` and `Phocas` go where",
        "`TrimmedMean` goes.",
        "",
        "Each pair below that goes together runs live with three ranks in `tests/composition`. Where",
        "nothing is lost, each rank's model equals the simulated one bit for bit, with two exceptions.",
        "`Auto` chooses by measured time: there the averaged models of all ranks are equal. `Ordered`",
        "equals, up to rounding, a simulated run in which all ranks are heard.",
        "",
        "A cell has the number of accepted combinations with both parts. `-`: they do not go together.",
    ]
    for stage in list(STAGES)[1:]:
        others = [part for part in parts if not part.startswith(f"{stage}: ")]
        text += [
            "",
            f"## By {stage}",
            "",
            _row(["", *STAGES[stage]]),
            _row(["---"] * (1 + len(STAGES[stage]))),
        ]
        for other in others:
            cells = [_either(count, f"{stage}: {name}", other) for name in STAGES[stage]]
            text.append(_row([other, *(f"{cell:,}" if cell else "-" for cell in cells)]))
    return "\n".join([*text, ""])


def _either(count: Counter[tuple[str, str]], one: str, other: str) -> int:
    return count[one, other] + count[other, one]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(names for names, _ in accepted()))
