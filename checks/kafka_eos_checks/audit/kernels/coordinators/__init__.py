"""Kernels over the logs of coordinators: transactional ids, committed offsets, decisions against markers.

May enter: ``internal_topics``, ``rules`` and the kernels of ``logs``. Read ``coordinator_log`` first.
"""
