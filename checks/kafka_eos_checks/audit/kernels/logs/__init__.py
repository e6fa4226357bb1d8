"""Kernels over one log: sequences, epochs and open transactions, chunk by chunk.

May enter: ``segments`` and ``rules``, no other kernels. Read ``summary`` first; ``fold`` combines the chunks.
"""
