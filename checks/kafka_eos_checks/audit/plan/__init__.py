"""The plans of an audit: stages over rows, with a key where rows have to meet.

``stages`` is the plan for logs. ``history_plan`` is the plan for histories, of the functions of ``history_stages``.
``found`` has the findings of both, wherever they are.
May enter: engines, kernels and rules. Not: Spark or Arrow themselves. Read ``stages`` first.
"""
