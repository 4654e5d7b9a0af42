"""A run's report: one HTML file with plots, that needs nothing else to be looked at."""

from __future__ import annotations

from tweed.report.page import write

__all__ = ["write"]
