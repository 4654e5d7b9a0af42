"""Sealed links of members that have a key and no rank: they come, go and return.

hub_links           the hub's to its members; `allowances`: what each may send; `silence`: who sends nothing
member_link         a member's to its hub; `ways`: to members that add up, or hand on models
"""
