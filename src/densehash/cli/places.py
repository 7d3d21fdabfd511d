"""Checks where commands write, before any work is done."""

from __future__ import annotations

from pathlib import Path

from densehash.disk import is_there, writing
from densehash.errors import FileError
from densehash.store import Store
from densehash.store.lockfile import check_ours
from densehash.store.manifest import FORMS
from densehash.store.reading import find_manifest

__all__ = ["check_file_place", "check_folder_place"]


def check_file_place(out: Path) -> None:
    """Refuse a path at which no file can be written."""
    _check_parent(out)
    if out.is_dir():
        raise FileError(f"{out} is a directory, expected a file or nothing")


def check_folder_place(out: Path, form: str, *, force: bool) -> None:
    """Refuse a path at which a folder cannot be saved.

    Parameters
    ----------
    out : the folder
    form : what the folder will hold, one of ``manifest.FORMS``
    force : whether to replace an existing folder
    """
    _check_parent(out)
    with writing(out):
        if not is_there(out):
            return
        if not out.is_dir():
            raise FileError(f"{out} is no folder, expected {FORMS[form]} or nothing")
        check_ours(out, form)
    if find_manifest(out) is not None:
        Store.open(out, form=form)  # refuses to replace a damaged folder or anything else
        if not force:
            raise FileError(f"{out} is {FORMS[form]} already: --force replaces it")


def _check_parent(out: Path) -> None:
    if not out.absolute().parent.is_dir():
        raise FileError(f"{out.absolute().parent} is no folder, so {out} cannot be made in it")
