"""The engines that run a plan: this process with its workers (``local``), and Spark (``spark``); what each stage costs.

May enter: inputs, splits and files. Not: a rule or a kernel. Read ``local`` first: it has the protocol of both.
"""
