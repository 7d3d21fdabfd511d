"""The command itself, and what all subcommands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import densehash
from densehash.cli import INTERRUPTED
from densehash.errors import DensehashError
from densehash.progress import silenced

__all__ = ["examples", "run"]


def examples(*commands: str) -> str:
    """The examples at the end of a help text."""
    return "\n".join(["Examples:", "", *(f"- {command}" for command in commands)])


def _be_quiet(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.with_resource(silenced())


def _takes_quiet(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Show no progress on stderr.",
            callback=_be_quiet,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Only holds the option that every command gets; it is never called."""


class _Commands(TyperGroup):
    """Commands that all have ``--quiet``."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        one = typer.Typer(add_completion=False)
        one.command()(_takes_quiet)
        (quiet,) = typer.main.get_command(one).params
        for command in self.commands.values():
            command.params.append(quiet)


app = typer.Typer(
    cls=_Commands,
    help="Learned binary codes for nearest-neighbour search. Results go to stdout, progress to "
    "stderr; a mistake is one line on stderr and exit code 2.",
    epilog=examples(
        "densehash compare vectors.npy",
        "densehash build vectors.npy -o photos.dh",
        "densehash search photos.dh queries.npy -k 10",
        "densehash fit vectors.npy -o model.dh --bits 64",
        "densehash encode vectors.npy --hasher model.dh -o codes.npy",
        "densehash paper --quick",
    ),
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # otherwise help would keep the line breaks of docstrings
    no_args_is_help=True,
)

# The base class of typer's errors about arguments, which some versions of typer do not export.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of the user prints one line on stderr, with exit code 2."""
    try:
        code = app(args=arguments, prog_name="densehash", standalone_mode=False)
    except _UsageError as error:
        _fail(error.format_message())
    except DensehashError as error:
        _fail(str(error))
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:  # some versions of typer return it
        raise KeyboardInterrupt
    sys.exit(code)


def _fail(message: str) -> None:
    sys.stderr.write(f"densehash: {' '.join(message.split())}\n")
    sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"densehash {densehash.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    pass
