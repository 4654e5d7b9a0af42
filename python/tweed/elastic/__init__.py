"""Members that are lost while training goes on: survivors form the next group in the same processes.

    control = start(store, rank, size, Elastic(2, 8))         # torch's store is for this first meeting alone
    run = ElasticRun(control, Sampler(GlobalOrder(60_000), 512))
    for _ in range(steps):
        mean = run.step(gradient_of_samples)                 # the same bits at all members
        ...                                                  # put it into the optimizer
    run.finish()

control    links between all members, over which they agree who is in; a thread drives them
run        the steps: each counts for all or for none, whoever is lost meanwhile

What decides is elsewhere, and runs under `tweed.simulate.elastic` too: `crates/proto/src/members` who is a
member, `tweed.exchange.commit` which step counts, `tweed.data.sampler` whose samples.
"""

from __future__ import annotations

from tweed.elastic.control import Control, Elastic, start
from tweed.elastic.run import ElasticRun

__all__ = ["Control", "Elastic", "ElasticRun", "start"]
