"""The readable rules as the oracle of the plans, on given logs and on random ones.

May enter: the plans and the rooms below them. Read ``oracle``; ``random_clusters`` and ``random_histories`` make the
cases of ``kafka-eos lab fuzz``, and ``synthetic`` writes their logs as Kafka does.
"""
