"""Replay: the rules of exactly-once, evaluated over log segments and client histories, on one machine or on Spark.

``headers`` and ``records`` read bytes, ``rules`` says what must hold, ``summary`` proves it chunk by chunk, ``local``
and ``spark`` are the two engines, ``sql`` is a second, independent statement of the same rules.
"""
