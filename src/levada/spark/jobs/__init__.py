"""Levada's own heavy work, as Spark jobs: replay, repartition, dedup, audit, snapshot.

Each is a pure function on a frame with the columns of Spark's Kafka source, in a file named after it, and the steps around it that
meet the broker. Whatever can be refused is refused before Spark starts. What is written is exactly-once (`copying.py`), so that
a job that was killed and is run again goes on and repeats nothing.
"""
