# SPDX-License-Identifier: BSD-2-Clause
import sys

from livedma.cli import main

sys.exit(main())
