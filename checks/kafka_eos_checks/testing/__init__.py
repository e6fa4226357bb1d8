"""``kafka-eos serve``, and the same cluster for tests: in the process, with faults and a judgement at the end.

Read ``in_process_broker`` first, then ``exactly_once``, which writes a test's question into the history and lets the
audit judge. ``observations`` adds what only the running broker shows.
"""
