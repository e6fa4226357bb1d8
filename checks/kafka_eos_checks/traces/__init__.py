"""Trace validation: recorded and simulated runs are behaviours of the spec, for TLC and for the reference.

Read ``validation`` first.
"""
