"""Place 40 orders and ship them: ``python ship.py 127.0.0.1:9092 [MISTAKE]``; see the README."""

import sys

from confluent_kafka import Producer

import mistakes
from shipping import Shipping

bootstrap_servers, *names = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
for number in range(40):
    producer.produce("orders", f"order {number}".encode(), partition=number % 2)
assert producer.flush(20) == 0, "the orders were not taken"
application = getattr(mistakes, names[0]) if names else Shipping
shipping = application(bootstrap_servers, "orders", "shipments", "shipping")
shipping.run(quiet=2)
shipping.close()
print("no order has come for two seconds; `kafka-eos audit` says whether each was shipped once")
