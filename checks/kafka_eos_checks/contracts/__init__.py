"""Contracts of the reference's arithmetic, codec and guards, which CrossHair tries to break.

Read ``conditions`` first.
"""
