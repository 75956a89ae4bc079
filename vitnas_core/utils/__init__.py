"""Helpers without a subject of their own: files written atomically, JSON, randomness, text."""
