"""Which buckets the engine is told to send first. Pure: the engine is a list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tweed.errors import UsageError
from tweed.exchange import engine
from tweed.exchange.bucket import Bucket, GradientBucket
from tweed.exchange.urgent_gradients import UrgentGradients


class Told(dict[int, int]):
    """Urgencies by address."""

    def set_urgency(self, address: int, bytes: int, urgency: int) -> None:
        self[address] = urgency
        if not urgency:
            del self[address]


def made(monkeypatch: pytest.MonkeyPatch, told: Told | None, buckets: int = 3) -> UrgentGradients:
    def asked(group: Any) -> Any:
        if told is None:
            raise UsageError("of another backend")
        return told

    monkeypatch.setattr(engine, "loss_reports", asked)
    tensors = [[torch.ones(2)] for _ in range(buckets)]
    each = [GradientBucket(["a"], Bucket(torch.zeros(4), one, marked=True)) for one in tensors]
    comm: Any = SimpleNamespace(
        prescale=1.0, losses=None, group=None, owners=SimpleNamespace(contributes=True),
        renew=lambda bucket: bucket.lay(torch.zeros(4)),
    )  # fmt: skip
    return UrgentGradients(each, comm, cadence=SimpleNamespace())  # type: ignore[arg-type]


def test_the_last_bucket_leaves_first_and_all_after_what_has_no_urgency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gradients = made(monkeypatch, told := Told())
    order = [told[one.bucket.flat.data_ptr()] for one in gradients.buckets]
    assert order == sorted(order) and len({*order}) == 3 and max(order) < 0


def test_memory_that_is_given_up_has_no_urgency(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = made(monkeypatch, told := Told())
    bucket = gradients.buckets[1].bucket
    old, urgency = bucket.flat, told[bucket.flat.data_ptr()]
    gradients.renew(bucket)
    assert old.data_ptr() not in told and told[bucket.flat.data_ptr()] == urgency
    gradients.close()
    assert told == {}


@pytest.mark.parametrize(("told", "buckets"), [(None, 3), (Told(), 1)])
def test_other_backends_and_single_buckets_have_no_order(
    monkeypatch: pytest.MonkeyPatch, told: Told | None, buckets: int
) -> None:
    gradients = made(monkeypatch, told, buckets)
    gradients.renew(gradients.buckets[0].bucket)
    gradients.close()
    assert not told
