"""`python -m mithril` is the command `mithril`."""

import sys

from mithril.cli.__main__ import main

sys.exit(main())
