"""`python -m dragoman`, and the command `dragoman`."""

import sys

from handler.cli import main

if __name__ == "__main__":
    sys.exit(main())
