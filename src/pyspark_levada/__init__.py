"""Spark looks for data sources in packages named `pyspark_*` and takes their `DefaultSource`: this is how `format("levada")` is found."""

from levada.spark.source import LevadaSource as DefaultSource

__all__ = ["DefaultSource"]
