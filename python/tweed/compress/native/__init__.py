"""Loops over many values, which compressors are made of: native for CPU tensors, torch's for all others.

sparse  choosing values and coding where they belong
quant   few bits per value

Both ways give the same bits. All but `form` load torch: codecs import them when they are called.
"""

from __future__ import annotations
