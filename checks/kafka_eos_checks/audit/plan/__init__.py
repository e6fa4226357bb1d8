"""The plans of an audit: stages that read and write rows; rows that are judged together have the same key.

``stages`` is the plan for logs; ``slice_stages`` are its stages for a producer with very many transactions.
``open_stages`` are those for data without a marker.
``history_plan`` is the plan for histories, of the functions of ``history_stages``. ``found`` has the findings of both,
wherever they are.
May enter: engines, kernels and rules. Not: Spark or Arrow themselves. Read ``stages`` first.
"""
