"""Every command of ``densehash`` as Markdown, from the sources of ``--help``."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["page"]


def page() -> str:
    """The commands as Markdown: for each what it does, its usage, and a table of its options."""
    import typer  # noqa: PLC0415  only when a page needs it

    from densehash.cli import commands  # noqa: F401, PLC0415  they add themselves to the app
    from densehash.cli.app import app  # noqa: PLC0415

    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="densehash")
    return "\n".join(
        line for name in sorted(group.commands) for line in _command(group, context, name)
    )


def _command(group: Any, parent: Any, name: str) -> list[str]:
    command = group.get_command(parent, name)
    context = type(parent)(command, info_name=name, parent=parent)
    parameters = [p for p in command.get_params(context) if p.name != "help" and not p.hidden]
    lines = [f"## densehash {name}", "", _literal(command.help), ""]
    if parameters:
        lines += ["| argument | what it is |", "| --- | --- |"]
        lines += [f"| {_names(p)} | {_text(p, context)} |" for p in parameters]
    # "- densehash ..." is an example to copy.
    examples = [line[2:] for line in (command.epilog or "").splitlines() if line[:2] == "- "]
    return [*lines, "", "```bash", *examples, "```", ""]


def _literal(text: str) -> str:
    """The text with its options as code; otherwise a page would show the -- of --ids as a dash."""
    return re.sub(r"(?<![\w`-])(--?[a-z][a-z-]*)", r"`\1`", text)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    options = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}`" for name in options)


def _text(parameter: Any, context: Any) -> str:
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    default = parameter.get_default(context, call=False)
    if getattr(parameter, "show_default", False) and default not in (None, False, (), []):
        text = f"{text} Default `{default}`."
    return f"{_literal(text)} Required." if parameter.required else _literal(text)
