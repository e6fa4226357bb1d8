---------------------------- MODULE CounterBounds ----------------------------
EXTENDS Counter

CONSTANT MaxLog

Bounds == Len(log) <= MaxLog
=============================================================================
