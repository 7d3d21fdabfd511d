"""How many times as long those tests run that can try more: with `make soak`, 10."""

import os

SOAK = int(os.environ.get("DENSEHASH_SOAK", "1"))
