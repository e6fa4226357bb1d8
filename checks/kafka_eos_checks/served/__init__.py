"""``kafka-eos serve``, and the same cluster for tests: in the process, with faults and a judgement at the end."""
