"""What holds a threshold where it lets as many values through as were asked for. Pure arithmetic.

    budget = hold.budget(asked)              how many values may be sent this turn
    (the values from hold.tau on are found: one pass; of more than the budget the largest are sent)
    hold = hold.after(asked, budget, found, sent, least)

Near a threshold the number of values from it on falls as a power of it: `found ~ tau ** -slope`. Each turn
gives two points of that line, the candidates at tau and those sent at the least magnitude sent, so that the
slope is measured and not assumed. The next threshold is set, by this line, where `AIM` times as many
candidates are expected as are asked for: few enough to choose from in no time, enough that there are seldom
too few of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: So many candidates are wanted per value that is asked for.
AIM = 2.0
#: With fewer than one in so much of the budget, the threshold is found anew within the turn; what one turn
#: leaves of its budget is sent later, but a turn never sends more than so many times what was asked for.
CAP = 1.2
#: Slopes that are taken for possible, and the one that is assumed first.
_SLOPES = (0.5, 20.0)
_SLOPE = 3.0
#: How much a turn's slope counts in the estimate.
_NEW = 0.3
TINY = 2.0**-149  # the least float32 above zero
_LARGEST = 2.0**127  # a threshold beyond would be found by nothing


@dataclass(frozen=True, slots=True)
class ThresholdController:
    """What is kept of one tensor from turn to turn.

    Args:
      tau: candidates have at least this magnitude; 0: not known, and is to be found.
      slope: how steeply their number falls.
      credit: values that were asked for and not yet sent: fractions of a value, and what a turn lacked.

    Example:
      >>> controller = ThresholdController()
      >>> controller.budget(2.5)
      2
      >>> controller = controller.after(2.5, budget=2, found=0, sent=2, least=1.0)
      >>> 0 < controller.tau < 1.0, controller.credit, controller.budget(2.5)
      (True, 0.5, 3)
    """

    tau: float = 0.0
    slope: float = _SLOPE
    credit: float = 0.0

    def budget(self, asked: float) -> int:
        """How many values may be sent this turn, where `asked` are on average."""
        return math.floor(asked + self.credit + 1e-9)

    def after(self, asked: float, budget: int, found: int, sent: int, least: float) -> ThresholdController:
        """What is kept for the next turn.

        Args:
          asked, budget: as before.
          found: candidates that there were at `tau`; 0 if nobody looked.
          sent: values that were sent.
          least: the least magnitude among them, above 0; of no account if nothing was sent.

        Returns: with a threshold above 0, or 0 if there is still nothing to go by.
        """
        credit = min(max(0.0, asked + self.credit - sent), max((CAP - 1) * asked, 1.0))
        searched = CAP * found < budget
        if not sent:
            return ThresholdController(TINY if searched else self.tau, self.slope, credit)
        slope, tau = self.slope, least
        if found > sent and least > self.tau > 0:  # two points of the line
            seen = math.log(found / sent) / math.log(least / self.tau)
            slope += _NEW * (min(max(seen, _SLOPES[0]), _SLOPES[1]) - slope)
        if sent < budget:  # all candidates were sent; after a search, all that is not zero
            tau = TINY if searched else self.tau
        tau *= (sent / (AIM * max(budget, asked))) ** (1 / slope)
        return ThresholdController(min(max(tau, TINY), _LARGEST), slope, credit)
