"""Pictures: stories of states, sequence diagrams and plots, as text and SVG, and the page of verdicts.

The registry of models may enter, for its words. Read ``sequence_diagram`` first.
"""
