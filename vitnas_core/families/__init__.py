"""One room per family: ``arch.py`` (choices and cost; no torch), ``backbone.py`` (the network), ``weights.py``."""
