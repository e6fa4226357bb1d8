"""``kafka-eos simulate``: the reference as a whole under named failures, and applications crashed at every step."""
