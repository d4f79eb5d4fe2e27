"""The one loop, checkpoints, replicas, tracking and metrics."""
