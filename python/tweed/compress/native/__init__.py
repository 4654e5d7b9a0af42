"""Loops over many values, which compressors are made of: native for CPU tensors, torch's for all others.

sparse  choosing values and coding where they belong
quant   few bits per value

Both ways give the same bits. Modules whose names end in `_torch` load torch; the others do when called.
"""

from __future__ import annotations
