"""The engines that run a plan: this process with its workers (``local``), and Spark (``spark``); what each stage costs.

``rounds`` runs parts of a plan side by side, so that one query answers what all of them ask next.

May enter: inputs, splits and files. Not: a rule or a kernel. Read ``engine`` first: it has the protocol of both.
"""
