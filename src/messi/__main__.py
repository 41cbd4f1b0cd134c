"""``python -m messi`` is the command ``messi``."""

import sys

from messi.cli.main import main

sys.exit(main())
