"""`python -m elfnet` is the command `elfnet`."""

import sys

from elfnet.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
