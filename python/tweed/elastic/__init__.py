"""Members that are lost and join while training goes on: the others form the next group in the same
processes. `tweed.attach(model, optimizer, elastic=Elastic(2, 8))` is the way in; below it:

    control = start(store, rank, size, Elastic(2, 8))  # torch's store is for this rendezvous alone
    control = join("host:port", Elastic(2, 8))  # or, while others train: `Control.address` of any
    keep = {"model": model, "optimizer": optimizer}
    run = ElasticRun(control, Sampler(GlobalOrder(60_000), 512), keep)
    while run.steps_done < steps:
        mean = run.step(gradient_of_samples)  # the same bits at all members
        ...  # put it into the optimizer
    run.finish()

rendezvous        how a process gets among the members: `start`, `join`, `meet`
settings          how many members there may be, and how they are reached
control           links between all members, over which they agree who is in; a thread drives them
discovery         how processes of a run learn of each other, and call each other
member_links      a process's part in that agreement, and its links; `messages`: what they say
witness           a process that decides who is a member, and has no part in training
witness_search    how one that is new finds the run in which it is to take another one's place
epoch             who is a member: a value; `change`: what has brought it about
group             the process group of an epoch: where its members connect
epoch_transition  what its members tell and give each other first; `unlike`: who calls something else
run               the steps: each counts for all or for none, whoever is lost or joins meanwhile
member, commit    what a member does about a step, and when that counts: pure
results           what this process has of steps that count; `closure_step`: one in parts; `sums`: their sums
local_state       what this process has: its part of the steps, and what its caller has and keeps
state_to_joiner   how a joiner gets the state, while the others go on; `window`: how much at once: pure
join_transfers    what a process gives to joiners, and takes as one: pure
state             the state as bytes; `packing`: in fewer, without loss; `terms`: what must be the same
checkpoint        the state on disk, each member its part
training          hooks for a plain training loop

What decides is pure, and part of it runs under `tweed.simulate.elastic` too: `crates/proto/src/members` who
is a member, `tweed.elastic.member` what one does about a step, `tweed.data.sampler` whose samples.
"""

from __future__ import annotations

from tweed.elastic.checkpoint import Checkpoints
from tweed.elastic.control import Control
from tweed.elastic.rendezvous import join, meet, start
from tweed.elastic.run import ElasticRun
from tweed.elastic.settings import Elastic

__all__ = ["Checkpoints", "Control", "Elastic", "ElasticRun", "join", "meet", "start"]
