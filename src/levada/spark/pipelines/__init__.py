"""Pipelines: pure functions over frames, declared with where their rows come from and go to, and run as streaming queries."""
