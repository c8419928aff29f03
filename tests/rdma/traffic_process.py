# SPDX-License-Identifier: BSD-2-Clause
"""Two devices, at the addresses given, in a process of their own.

It says ready. For each line of input there is some traffic, then a line with the counters of the
first device. It ends with its input.
"""

import json
import sys

from pairs import connected
from tapping import exchange

if __name__ == "__main__":
    with connected(addresses=(sys.argv[1], sys.argv[2])) as (a, b):
        print("ready", flush=True)
        for _ in sys.stdin:
            exchange(a, b)
            print(json.dumps(a.device.counters), flush=True)
