"""A real network on this machine that plays production: a leaf–spine of Linux network namespaces.

`fabric` builds it (veth pairs, token buckets, the kernel's own ECMP) and takes it away again, `sender` is the program
that runs in each host, `flows` draws what is sent and collects completion times, `compare` sets them against packet and
flow fidelity. Everything lives in namespaces whose names begin with `wtb` and a number; no command touches an interface
outside them. It needs root, and a kernel that allows namespaces (`refused` says what is missing).
"""
