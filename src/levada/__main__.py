"""`python -m levada` is `levada`."""

import sys

try:
    from levada.cli import main

    main()
except KeyboardInterrupt:
    sys.exit(130)
