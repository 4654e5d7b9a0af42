"""The metrics of a run: the links between its ranks, who arrives last, how far training is.

snapshot     what is known at one moment, and differences over time     pure
hub_snapshot   the same of a hub and its members                          pure
source       what the engine tells
job          what else a process can tell: the job's name, training
options      what a user wants of it
timeline     when a step encodes, and when it waits
publish      the thread that hands it on: every rank to rank 0, rank 0 to
live           `tweed top`, over a Unix socket                             and the end of `tweed top`
prometheus     Prometheus
tensorboard    TensorBoard
opentelemetry  OpenTelemetry
view         how `tweed top` shows it; `hub_view` that of a hub         pure
words        figures for people                                         pure

Importing this folder is light; what is optional is imported when somebody asks for it.
"""

from __future__ import annotations

from tweed.metrics.job import call, follow
from tweed.metrics.options import MetricsOptions
from tweed.metrics.publish import publish, stop

__all__ = ["MetricsOptions", "call", "follow", "publish", "stop"]
