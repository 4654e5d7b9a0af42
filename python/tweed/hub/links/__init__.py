"""What the two sides need of links, and those of ranks of a group.

base                what is needed of any links
rank_links          links of a process group
"""
