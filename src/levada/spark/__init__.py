"""Spark on topics: source, sink, pipelines and jobs. Brokers are met over `levada.wire` only."""
