"""Bytes of segments into columns, and columns into what the rules read. Neither Spark nor Arrow enters."""
