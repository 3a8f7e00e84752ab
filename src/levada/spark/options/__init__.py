"""The options of `format("levada")`, named as Spark's Kafka source and sink name them, checked before anything runs."""
