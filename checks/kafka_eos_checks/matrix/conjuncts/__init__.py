"""Every conjunct of every guard, removed one at a time, in the spec and in the reference.

Read ``guards`` first.
"""
