"""`python -m tfopt` is the command line."""

import sys

from tfopt.cli import main

sys.exit(main())
