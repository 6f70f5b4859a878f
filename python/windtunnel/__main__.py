"""`python -m windtunnel`."""

import sys

from windtunnel.cli import main

sys.exit(main())
