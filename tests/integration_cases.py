"""The examples of docs/integrations.md."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "integrations.md"


def run_example(section: str) -> dict[str, Any]:
    """Run the example of a section, and return its variables by name."""
    sections = re.split(r"^## ", DOCS.read_text(encoding="utf-8"), flags=re.M)
    (text,) = [each for each in sections if each.startswith(f"{section}\n")]
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(example, names)
    return names
