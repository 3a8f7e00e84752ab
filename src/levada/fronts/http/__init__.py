"""HTTP: metrics for Prometheus, and whether the broker is well."""

from levada.fronts.http.front import HttpFront
from levada.fronts.http.sources import Sources

__all__ = ["HttpFront", "Sources"]
