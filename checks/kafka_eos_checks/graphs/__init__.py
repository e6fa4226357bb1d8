"""TLC's answers: models checked with it, and its state graphs compared with the reference's.

Read ``command`` first.
"""
