"""The models that TLC checks, with bounds and formulas compiled to Python; rules of releases; findings in Kafka.

Read ``registry`` first.
"""
