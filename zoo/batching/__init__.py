"""Graphs of any size packed into batches of one shape."""
