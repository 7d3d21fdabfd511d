"""A folder of arrays that changes as a whole or not at all: ``docs/format.md`` has every byte."""

from densehash.store.folder import Change, Store, verify

__all__ = ["Change", "Store", "verify"]
