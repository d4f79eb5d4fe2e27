"""Gather, transform, reduce: a plain reference of each and a fused CPU kernel beside it."""
