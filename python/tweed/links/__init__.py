"""Processes with keys, which call each other: what hubs, members and workloads of other shapes share.

address    where a process is and who it is, and what one shows to be let in
dialer     a process calls another again and again, beside its work; `client`: once, and is answered
hello      what is said first over a link
silence    who was granted something, and sends nothing

Sockets, handshakes and sealing are in `crates/net/src/hub`.
"""
