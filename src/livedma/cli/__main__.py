import sys

from livedma.cli import main

sys.exit(main())
