"""Rows of the data source ``kafka_log`` (``source``), and the rules over logs in Spark SQL.

May enter: Arrow, kernels and the rooms that read. Not: a plan. Read ``selection``, then ``folded``: transactions and
committed offsets as rows.
"""
