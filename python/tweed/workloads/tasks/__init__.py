"""Many small computations over workers that straggle and die: each runs at least once and counts once.

mapping     `map_tasks`, and the loop that carries out what the planner decides
planner     who has which task, who is lost, whose task runs a second time; pure, with its `events`
lateness    when a task is late, as learned; pure
simulated   the planner on a virtual clock, with deaths, stragglers and lost messages drawn by a seed
local       workers as processes of this machine; `worker` is their side, `channel` the way between
on_ray      workers as actors of a Ray cluster
functions   functions by their names; `failures` has the texts of errors
progress    a bar on the terminal
"""

from __future__ import annotations

from tweed.workloads.tasks.local import LocalWorkers
from tweed.workloads.tasks.mapping import map_tasks
from tweed.workloads.tasks.on_ray import RayWorkers
from tweed.workloads.tasks.progress import progress_bar

__all__ = ["LocalWorkers", "RayWorkers", "map_tasks", "progress_bar"]
