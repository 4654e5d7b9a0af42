"""Tables and plots of the systems' experiments, and the goals of those that have many; pure."""

from __future__ import annotations
