"""The models that TLC checks: the registry of ``spec/models``, bounds, and formulas compiled to Python.

Read ``registry`` first.
"""
