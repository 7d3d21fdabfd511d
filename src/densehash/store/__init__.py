"""A folder of arrays that changes as a whole or not at all; ``docs/format.md`` describes it."""

from densehash.file_locks import lets_go
from densehash.store.changing import Change
from densehash.store.folder import Store
from densehash.store.reading import verify

__all__ = ["Change", "Store", "lets_go", "verify"]
