"""The command ``densehash``: parse, call, print. One file a subcommand, or a few small ones."""

from densehash.cli import (  # noqa: F401  importing subcommands adds them to the app
    build,
    change,
    compare,
    create,
    demo,
    encode,
    export,
    fetch,
    fit,
    info,
    paper,
    search,
    tune,
    verify,
)
from densehash.cli.app import main

__all__ = ["main"]
