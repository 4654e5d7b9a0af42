"""What systems measure with; `bench` does, too. What one system alone needs is in that system's folder.

barriers            how ranks of a benchmark wait for each other
benchmark           inside a rank: contenders take turns at the same work, in rounds
training            inside a rank: a task trained by a strategy or a peer; time per step of many, in turns
live_training       rates, whole trainings and step times of live ranks, from the launcher
time_to_accuracy    what a side takes to a peer's accuracy
simulated_training  trainings by virtual workers: no network and no clock
hub_training        whole trainings through a hub on a virtual clock, by devices with slow links
learning_rates      which learning rate is tried next, and when the best is known
tuning              sides of a comparison, each at its best rate, over seeds

What was measured is kept by `tweed.report.notes`; what is made of the lines is in `tweed.report.comparison`
and in the reports of systems.
"""

from __future__ import annotations
