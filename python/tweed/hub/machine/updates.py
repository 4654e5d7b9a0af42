"""What a hub's optimizer steps by: the same at the hub, and at its standby."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tweed.aggregate import Verdict


def update_of(found: Any, verdicts: Sequence[Verdict], per_contribution: bool) -> Any:
    """What the rule found; where each contribution is an update of its own, those in a sum are
    as many.

    Args:
      found: their mean.
      verdicts: on them.
    """
    count = sum(verdict.weight > 0 for verdict in verdicts)
    return found * count if per_contribution and found is not None and len(verdicts) > 1 else found
