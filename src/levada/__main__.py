"""`python -m levada` is `levada`."""

from levada.cli import main

main()
