"""The harness for comparisons, which `tweed.systems` and `bench` share.

barriers            how ranks of a benchmark wait for each other
benchmark           inside a rank: contenders take turns at the same work, in rounds
exchange_benchmark  an exchange over a network beside others, with recorded gradients
training            inside a rank: a task trained by a strategy or a peer; time per step of many, in turns
training_runs       whole runs of `tweed train`
simulated_training  trainings by virtual workers: no network and no clock
hub_training        whole trainings through a hub on a virtual clock, by devices with slow links
learning_rates      which learning rate is tried next, and when the best is known
tightening          how strongly may be compressed: a greedy search over ordered settings
tuning              sides of a comparison, each at its best rate, over seeds
live_training       rates, whole trainings and step times of live ranks, from the launcher
time_to_accuracy    what a side takes to a peer's accuracy
online_learning     many clients that learn from a stream, a sample each
descent             gradient descent in which ranks are silent now and then, simulated and live
descents            many of these as sides of a comparison
schedules           schedules on networks: times, bounds, growth
encoding            what compression takes on this machine
member_runs         members in a testbed that faults befall, and what a join costs
watched_members     what the lives of members write, and who is in, from the launcher
member_training     members that faults befall, and the model of a run in which nobody dies
member_checkpoints  how long a checkpoint holds a loop up
torchft_members     torchft's members, which the same befalls
notes               what was measured, a line each, in a folder

`experiments` measures; what is made of the lines is in `tweed.report.comparison` and in `tweed.systems`.
"""

from __future__ import annotations
