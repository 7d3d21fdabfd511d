"""The command ``densehash``: parse, call, print. One file a subcommand."""

from densehash.cli import compare, demo, fetch, info, paper  # noqa: F401  importing a subcommand adds it to the app
from densehash.cli.app import main

__all__ = ["main"]
