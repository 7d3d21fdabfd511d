"""How many times as long tests go on that can try more: `make soak` says 10."""

import os

SOAK = int(os.environ.get("DENSEHASH_SOAK", "1"))
