"""TLA+ as text, as values and as a tool: the one parser of modules, TLC's printed values, SANY and TLC themselves.

Every room may import from here. This room imports paths and messages about missing tools.
Read ``parser.py`` first: a module as definitions, comments and syntax trees. ``modules.py`` finds the modules of a
folder; ``values.py`` reads and writes values; ``evaluation.py`` has the operators that compiled formulas call;
``sany.py`` asks TLA+'s own parser for levels and places; ``tlc.py`` runs the model checker.
"""
