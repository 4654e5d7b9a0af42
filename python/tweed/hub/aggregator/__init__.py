"""What a member does for others, live: its machines are `machine.aggregator` and `machine.model_source`.

service             what it lets others send and fetch, and what it passes on
link                its links, with a thread for that
sealed_ranks        the same for ranks of a group
"""
