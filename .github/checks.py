"""What workflows check beside the tests: `checks.py changelog BASE`, `checks.py release TAG`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def changelog(base: str) -> str | None:
    """What is wrong with the changes since a commit: what users see is in the changelog."""
    listed = subprocess.run(
        ["git", "diff", "--name-only", f"{base}...HEAD"], capture_output=True, text=True, check=True
    )
    changed = listed.stdout.splitlines()
    code = [name for name in changed if name.startswith(("src/", "native/"))]
    if not code or "CHANGELOG.md" in changed:
        return None
    return (
        f"{code[0]} and {len(code) - 1} more files of the package changed, CHANGELOG.md did not: "
        "say there what users will notice, or label the pull request 'no changelog'"
    )


def release(tag: str) -> str | None:
    """What is wrong with a tag: the version stands in three files, and they agree."""
    version = tag.removeprefix("v")
    for name, form in (
        ("pyproject.toml", rf'^version = "{re.escape(version)}"$'),
        ("CITATION.cff", rf"^version: {re.escape(version)}$"),
        ("CHANGELOG.md", rf"^## \[{re.escape(version)}\]"),
    ):
        if not re.search(form, Path(name).read_text(encoding="utf-8"), re.M):
            return f"the tag is {tag}, but {name} has no version {version}: change it, then tag"
    return None


if __name__ == "__main__":
    what, argument = sys.argv[1:]
    sys.exit({"changelog": changelog, "release": release}[what](argument))
