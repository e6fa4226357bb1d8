"""Kernels over histories: joins of events with the records of logs.

May enter: ``events``, ``segments`` and the other kernels. Read ``stored`` (rows of logs), then ``joining`` and
``applying``.
"""
