"""Pictures: stories of state, sequence diagrams and plots, as text and SVG."""
