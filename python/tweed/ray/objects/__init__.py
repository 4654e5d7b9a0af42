"""Objects that processes put, get and sum as they appear, with neither torch nor Ray.

    with Objects(secret=...) as objects:
        objects.meet(descriptors)               # of the others: `Objects.descriptor`
        ref = objects.put(array)                # a Ref travels as any value does
        sums = objects.reduce(refs, count=3)    # the first three that appear
        array = objects.get(sums.ref).result(timeout=5)

refs       Ref: the id of an object
lists      several arrays as one object
futures    Future, Reduction and `wait`: calls under way
process    `Objects`, a process's part in it, and Writer

What is decided is in `crates/proto/src/objects`; bytes are moved and added in `crates/net/src/objects`.
"""

from __future__ import annotations

from tweed.ray.objects.futures import Future, Reduced, Reduction, wait
from tweed.ray.objects.process import Objects, Writer
from tweed.ray.objects.refs import Ref

__all__ = ["Future", "Objects", "Reduced", "Reduction", "Ref", "Writer", "wait"]
