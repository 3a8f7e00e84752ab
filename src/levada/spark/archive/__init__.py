"""One history: a topic with `levada.archive` is kept whole in a Delta table, and read as one with its log.

`layout` says what a table looks like, `making` and `vacancy` how and where one is made, `table` how it changes, `logs` what there
is and `planning` what is archived next, `writing` how a task writes it, `archiver` puts these together for one topic, `running`
keeps that going, `compaction` makes large files of small ones, `history` is the stitched read's part, `discovery` asks which
topics there are.
"""
