"""What the two sides need of links, how one comes about, and those of ranks of a group.

base                what is needed of any links
calling, dialer     a process calls another: once and is answered; or again and again, beside its work
rank_links          links of a process group
"""
