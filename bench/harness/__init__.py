"""Levada and Apache Kafka under the same load, measured the same way."""
