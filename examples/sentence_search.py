"""Search a file of texts, one a line, by meaning, with a model of sentence-transformers.

It needs ``pip install 'densehash[payload]' sentence-transformers``::

    python examples/sentence_search.py build texts.txt texts.dh --model all-MiniLM-L6-v2
    python examples/sentence_search.py search texts.dh "a question" --model all-MiniLM-L6-v2
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Protocol

from densehash import Index


class Model(Protocol):
    """What is used of a SentenceTransformer."""

    def encode(self, sentences: list[str]) -> Any:
        """Vectors of sentences, float32 (n, d)."""


def build(texts: list[str], model: Model, path: str | Path) -> Index:
    """Make an index of texts, which are kept beside their vectors."""
    payload = [{"text": text, "words": len(text.split())} for text in texts]
    return Index.build(model.encode(texts), payload=payload, metric="cosine", path=path)


def search(
    index: Index, question: str, model: Model, k: int = 5, where: str | None = None
) -> list[dict[str, Any]]:
    """The nearest texts: for each its id, distance, text and number of words."""
    (found,) = index.search(model.encode([question]), k, filter=where).to_dicts()
    return found


def load_model(name: str) -> Model:
    """A model by its name, or the folder in which it is."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  slow to import

    model: Model = SentenceTransformer(name)
    return model


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="make an index of the lines of a file")
    building.add_argument("texts", type=Path)
    building.add_argument("index", type=Path)
    searching = commands.add_parser("search", help="find the lines that are nearest to a question")
    searching.add_argument("index", type=Path)
    searching.add_argument("question")
    searching.add_argument("-k", type=int, default=5)
    searching.add_argument("--where", help="for instance 'words >= 5'")
    for each in (building, searching):
        each.add_argument("--model", required=True, help="a name, or the folder of a model")
    given = parser.parse_args(arguments)

    model = load_model(given.model)
    if given.command == "build":
        lines = [line for line in given.texts.read_text("utf-8").splitlines() if line.strip()]
        print(build(lines, model, given.index))
    else:
        for found in search(Index.open(given.index), given.question, model, given.k, given.where):
            print(f"{found['distance']:.3f}  {found['text']}")


if __name__ == "__main__":
    main()
