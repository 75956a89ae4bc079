"""Helpers: atomic file writes, checks of settings, JSON, randomness, text."""
