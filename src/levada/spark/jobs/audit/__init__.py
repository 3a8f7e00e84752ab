"""Is a topic as it should be? Gaps, repeats, keys, routing, balance, a checksum; a verdict and a page with plots.

audit.py asks. scan.py reads once: tally.py counts, holes.py says why offsets are missing, parcels.py brings together what belongs to a key (keys.py)
or an identity (identities.py; duplicates.py for fields of JSON). All of it is in figures.py; findings.py says what is right and wrong, page.py shows it.
"""
