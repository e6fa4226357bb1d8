"""Random walks over the reference's machines under swarms of faults, judged by the spec's own text.

A layer is a model of the registry with larger constants than TLC can search; a seed is one run of one layer. The
modules' formulas are compiled to Python (``models/formulas``): invariants, ``[][A]_v``, refinements, ``~>``. A run
draws which faults may happen and how often each action is tried. Then faults stop, the actions that the spec's
``Fairness`` names go on until none of them is enabled, and the goals have to be reached. A run that goes wrong is
shrunk: steps are left out as long as the violation stays, then a breadth-first search looks for a shorter schedule.
``whole`` walks the whole system: served clusters, applications and a mirror in one process, judged by
``served_invariants``.

Read ``layers`` first: it has the larger constants of each machine, and the reason for each property that is left out.
"""
