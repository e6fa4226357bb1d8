"""Pictures: stories of states, sequence diagrams and plots, as text and SVG.

The registry of models may enter, for its words. Read ``sequence_diagram`` first.
"""
