"""What is trained, and live contenders, by the keys that notes have. Pure."""

from __future__ import annotations

#: What is trained: sets, how they are dealt, phi; rows of a batch, steps, clients (the first by label, too).
DATA, PARTITIONS, PHIS = ("mnist", "fashion-mnist"), ("iid", "shards:2"), ("0", "0.5", "1", "1 to 0")
BATCH, STEPS, CLIENTS = 32, 500, (5, 10, 20)
