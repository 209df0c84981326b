"""Deterministic code: the workflows themselves, their contracts and their pure rules."""
