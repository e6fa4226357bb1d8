"""Parts of Kafka's clients without a specification of their own: their settings, and which of them they refuse.

Tests compare the rules with Kafka's own Java classes and with librdkafka; ``kafka-eos settings`` applies them. The room
imports formats, which know sizes and limits, and no machine.
"""
