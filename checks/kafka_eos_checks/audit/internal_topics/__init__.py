"""The records of ``__transaction_state`` and ``__consumer_offsets`` as columns, and decisions of coordinators.

May enter: ``segments``. Not: a rule, Spark or Arrow. Read ``states`` first; ``chunks`` has the place of each record.
"""
