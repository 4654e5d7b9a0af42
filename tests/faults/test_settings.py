"""Wrong settings at one rank of two: both end soon, and both are told which, of whom, and what to do.

More of them are tried elsewhere: secrets and `TWEED_DIAL_ONLY` in tests/torch/test_admission.py, firewalls in
test_firewalls.py, plans in test_plans.py, hosts and ports that are taken in test_setup.py, what keeps hosts
from being used at all in tests/launch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.settings import PAGE, WRONG, told

_SOON_S = 15.0


def holds(case: str, folder: Path) -> None:
    for text, seconds in told(case, folder):
        assert all(word in text for word in WRONG[case].words), text
        assert seconds < _SOON_S


@pytest.mark.parametrize("case", [case for case, row in WRONG.items() if row.network is None])
def test_both_ranks_are_told_what_is_wrong_with_one(tmp_path: Path, case: str) -> None:
    holds(case, tmp_path)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("case", [case for case, row in WRONG.items() if row.network is not None])
def test_both_ranks_are_told_what_is_wrong_between_them(tmp_path: Path, case: str) -> None:
    holds(case, tmp_path)


def test_the_page_has_every_row() -> None:
    rows = [line.split(" | ", 2) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = {name.removeprefix("| "): (setting, text) for name, setting, text in rows[1:]}
    assert list(found) == list(WRONG)
    for case, row in WRONG.items():
        setting, text = found[case]
        assert setting == row.setting
        assert [word for word in row.words if word not in text] == [], case
