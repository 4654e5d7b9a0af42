"""A group of ranks that trains in step or by rounds, with or without a server among them.

connect  ranks agree on model and strategy, and have a group
factors  linear layers that hand over the factors of their gradients
run      the run of a rank
"""
