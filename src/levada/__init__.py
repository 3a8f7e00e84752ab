"""Levada: streams, queues and tables over one log."""

__version__ = "0.1.0"
