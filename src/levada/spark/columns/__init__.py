"""Fetched batches as columns: what Spark's Kafka source gives, built in compiled code with no Python per record."""
