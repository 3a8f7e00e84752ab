"""Is a topic as it should be? Gaps, repeats, keys, routing, balance, a checksum; a verdict and a page with plots.

audit.py asks; scan.py reads once for tally.py (counting), holes.py (why offsets are missing) and keys.py; duplicates.py is a second read.
All of it is in figures.py; findings.py says what is right and wrong of it, page.py shows it.
"""
