"""The files of a log as columns: splits of files, then batch headers, control records and records.

May enter: numpy and the file formats of the reference. Not: a rule, a finding, Spark or Arrow. ``header_tables`` reads
Parquet in the place of segments. Read ``splits`` first, then ``headers``.
"""
