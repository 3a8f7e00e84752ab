"""Levada's Spark source and sink and Spark's own Kafka connector, doing the same work on the same topics."""
