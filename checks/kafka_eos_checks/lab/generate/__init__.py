"""``kafka-eos lab generate``: logs, clusters and histories of any size, with violations at known places.

Read ``cluster.py`` first. ``traffic.py`` draws what clients do, slice by slice. ``log_files.py`` and ``batches.py``
write logs, ``client_history.py`` and ``client_requests.py`` the history. ``violations.py`` and
``history_violations.py`` plant violations. ``planted_logs.py`` makes plain logs of idempotent producers.
"""
