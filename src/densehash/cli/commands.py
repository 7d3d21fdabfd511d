"""All commands, in the order of the help: importing them adds them to the app."""

from densehash.cli import (  # noqa: F401
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

__all__: list[str] = []
