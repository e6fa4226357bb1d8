"""Every conjunct of every guard, taken away one at a time, in the spec and in the reference.

Read ``guards`` first.
"""
