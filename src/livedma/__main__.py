# SPDX-License-Identifier: BSD-2-Clause
"""`python -m livedma` is the command `livedma`."""

import sys

from livedma.cli import main

sys.exit(main())
