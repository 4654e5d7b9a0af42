"""tweed in trainers that other people wrote: a thin file for each, docs/frameworks.md for all.

Each needs its framework (the extras `lightning`, `accelerate`, `transformers`, `flower`), and
none is imported by tweed itself.
"""
