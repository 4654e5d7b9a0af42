"""Sums of gradients, each of which is waited for alone."""

from __future__ import annotations

import torch.distributed as dist

from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket
from tweed.exchange.gradients import SummedGradients


class DeferredGradients(SummedGradients):
    """As `SummedGradients`, with a wait for each bucket.

    Ranks hear that one cannot take part when they read, amid collectives of the program: so they ask each
    other nothing.
    """

    def receive(self, bucket: Bucket, work: dist.Work) -> None:
        """Waits for `work`, which was started for `bucket`, alone: its views are averages then.

        Raises: as `finish`. All ranks raise then, whichever bucket each asks for first.
        """
        self._comm.wait(work)
        self._check(bucket.marks[-1])

    def _refusal(self, own: UsageError | None) -> UsageError:
        return own or UsageError(
            "another rank cannot take part, and nothing was exchanged: its own error says why"
        )

    def _other_steps(self) -> UsageError:
        return UsageError(
            f"ranks have taken other numbers of steps since attach, this one {self.steps_taken}, so that "
            "their models differ. Nothing was exchanged now. Let all ranks skip the same steps"
        )
