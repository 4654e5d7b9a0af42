"""What does not go with members that come and go, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from tweed.composition import Rule, check
from tweed.strategy import Strategy

_ELASTIC = "elastic=Elastic(...)"
_RULES = (
    Rule(
        ("collective", _ELASTIC),
        lambda s: s.hub is not None,
        "members of a hub come and go by themselves: leave elastic out, and give attach(hub=...), see "
        "docs/hub.md",
    ),
    Rule(
        ("collective", _ELASTIC),
        lambda s: s.collective is not None,
        "its rank has a part that no other member can take over. Leave it out",
    ),
    Rule(
        ("exchange", _ELASTIC),
        lambda s: s.exchange == "factors",
        "each member would form the sum from the factors that it has, and those of one that is lost within a "
        'step are at some members and not at others. Exchange "gradient"',
    ),
    Rule(
        ("exchange", _ELASTIC),
        lambda s: (
            s.exchange != "gradient" and (s.cadence.round_steps is None or "gradient" in s.cadence.exchanges)
        ),
        "members' models differ after each exchange, so that steps are lost with who made them, and who "
        'joins finds no one model to begin with. Exchange "gradient", or "difference" by LocalSteps(...)',
    ),
    Rule(
        ("cadence", _ELASTIC),
        lambda s: s.cadence.round_steps is None,
        "all members contribute to each step or round, which counts for all or for none. Take EveryStep() "
        "or LocalSteps(...)",
    ),
    Rule(
        ("order", _ELASTIC),
        lambda s: s.order is not None,
        "ranks keep to one list of pieces, and the one that made it may be lost before others have it. Leave "
        "it out",
    ),
    Rule(
        ("cadence", _ELASTIC),
        lambda s: s.cadence.overlapped,
        "while an exchange is under way members' models differ, and who joins finds no one model to begin "
        "with. Leave delay and fragments out",
    ),
    Rule(
        ("compress", _ELASTIC),
        lambda s: s.exchange != "gradient" and s.memory and not s.memory.one_model,
        "under it members' models differ after an exchange, and who joins finds no one model to begin with. "
        "Take ErrorFeedback(...)",
    ),
    Rule(
        ("aggregate", _ELASTIC),
        lambda s: s.aggregate.in_network != "mean",
        "it weighs contributions against each other, and those of members are sums over shares of unequal "
        "sizes, of which only the mean over samples is right. Take Mean()",
    ),
    Rule(
        ("compress", _ELASTIC),
        lambda s: s.memory and s.memory.sends_differences,
        "what each member has sent last is in every mean, that of one who is lost too, and nobody else can "
        "take it out. Take ErrorFeedback(...)",
    ),
    Rule(
        ("compress", _ELASTIC),
        lambda s: s.memory and s.memory.autotuned,
        "it learns from the steps before which form is quickest, on the links of those who were members. "
        'Name one, such as "top_k:0.01" or Quantise(8)',
    ),
    Rule(
        ("transport", _ELASTIC),
        lambda s: s.transport is not None,
        "a step must have whole contributions, over links that stand while members change: leave it out",
    ),
)


def check_strategy(strategy: Strategy) -> None:
    """Raises StrategyError for what does not go with members that come and go, and why."""
    check(strategy, _RULES)


def follows_models(kept: Any, optimizers: Sequence[Optimizer]) -> bool:
    """Whether what it keeps follows, or may come to follow, from a member's own model."""
    if any(kept is one for one in optimizers):
        return True
    leaves = tree_leaves(kept.state_dict()) if hasattr(kept, "state_dict") else []
    return any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves)
