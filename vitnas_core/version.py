"""The version, readable without importing torch (pyproject.toml reads it)."""

__version__ = '0.1.0'
