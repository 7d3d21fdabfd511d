"""The command ``densehash``: parses, calls, prints. A file has one or a few small commands."""

import sys
from collections.abc import Sequence

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of the user prints one line on stderr, with exit code 2."""
    try:
        # Imported here, so that Ctrl-C during loading also prints one line.
        from densehash.cli import commands  # noqa: F401, PLC0415
        from densehash.cli.app import run  # noqa: PLC0415

        run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("densehash: stopped; what was written before is kept\n")
        sys.exit(INTERRUPTED)
