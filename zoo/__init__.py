"""gnn-zoo: scientific graph neural networks by name."""

__version__ = "0.1.0"
