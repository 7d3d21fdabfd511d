"""The command ``densehash``: parse, call, print. One file a subcommand, or a few small ones."""

import sys
from collections.abc import Sequence

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a mistake of the user is one line on stderr and exit code 2."""
    try:
        # Here, so that Ctrl-C while they load is one line, too.
        from densehash.cli import commands  # noqa: F401, PLC0415
        from densehash.cli.app import run  # noqa: PLC0415

        run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("densehash: stopped; what was written before is kept\n")
        sys.exit(INTERRUPTED)
