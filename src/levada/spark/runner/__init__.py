"""Keeps pipelines as wanted: whoever runs them, one runner at a time for each cluster.

`plan` decides, `keeper` carries out, `shelf` finds pipelines, `board` is the topic with wishes and states, `seat` sees to it that
there is one runner, `runner` puts them together. The board needs no Spark: the command line reads and writes it with no runner there.
"""
