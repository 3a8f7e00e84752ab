"""Rows of Spark into topics: encoded on the executors in compiled code, and made visible exactly once.

rows → `encode` (record batches, routed as the broker routes) → `stage` (set down, seen by nobody) → `commit` (one transaction copies
them to their topics, with the number of the Spark batch). With at-least-once the batches go straight to their topics.
"""
