"""Is a topic as it should be? Gaps, repeats, keys, routing, balance, a checksum; a verdict and a page with plots.

measures.py (frames → figures) and holes.py (batches → figures) → figures.py → findings.py (what is right and wrong) → page.py.
"""
