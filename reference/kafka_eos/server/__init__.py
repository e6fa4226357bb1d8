"""The reference as a server that Kafka's clients can use: machines, their storage, requests, and a network.

===================  ==================================================================================================
``schemas``          the messages of the APIs that are served, as Kafka's own schemas define them
``storage``          the batches of partitions, in memory or in files
``partitions``       a partition at its leader: the machines of its producers and transactions, around the storage
``transactions``     the transaction coordinators, one machine for each transactional.id
``groups``           the group coordinators: classic groups, committed and pending offsets
``consumer_groups``  the coordinators of consumer groups (KIP-848)
``cluster``          brokers, topics and the three above, with a clock that is told the time
``handlers``         requests and responses
``faults``           which request meets which fault
``refusals``         answers that are only an error
``network``          connections and timers: the only module here that knows sockets or a clock
``threaded``         all of it in a thread, and the control that tests have of it
===================  ==================================================================================================
"""
