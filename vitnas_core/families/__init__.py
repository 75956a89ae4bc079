"""One folder per family: ``arch.py`` (choices and cost; no torch), ``backbone.py`` (network), ``weights.py``."""
