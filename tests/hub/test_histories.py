"""Some hundreds of the histories of `histories`; `python -m tests.hub.histories` runs 10,000."""

from __future__ import annotations

import pytest

from tests.hub.histories import failures


@pytest.mark.parametrize("block", range(10))
def test_no_history_hangs_or_counts_what_it_must_not(block: int) -> None:
    found = failures(30 * block, 30)
    assert not found, f"seeds {list(found)}: {found}"
