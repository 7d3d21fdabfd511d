"""Public names: `__all__` of each module says what the module defines, no more and no less."""

import importlib.util
import inspect
import pkgutil

import pytest

import densehash

# Modules that cannot be imported without a package.
NEEDED = {
    "densehash.rows.dask": "distributed",
    "densehash.distributed": "distributed",
    "densehash.integrations.langchain": "langchain_core",
    "densehash.integrations.llama_index": "llama_index",
    "densehash.gpu.": "torch",
    "densehash.gpu.kernels": "triton",
    "densehash.gpu.matrices": "triton",
}
# Modules with public names, by the page of the reference that has them.
REFERENCE = {
    "index": ("densehash.index",),
    "hashers": ("densehash.hashers",),
    "codes": tuple(
        f"densehash.{name}"
        for name in ("bits", "hamming", "asymmetric", "estimates", "truth", "metrics")
    ),
    "datasets": ("densehash.datasets",),
    "distributed": ("densehash.distributed", "densehash.distributed.spark"),
    "export": (
        "densehash.export",
        *(f"densehash.integrations.{name}" for name in ("sklearn", "langchain", "llama_index")),
    ),
    "errors": ("densehash.errors",),
}
MISSING = tuple(name for name, package in NEEDED.items() if not importlib.util.find_spec(package))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(densehash.__path__, "densehash.")
    if not module.name.rpartition(".")[2].startswith("_") and not module.name.startswith(MISSING)
)


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_what_the_module_defines(name: str) -> None:
    module = importlib.import_module(name)
    defined = {
        attribute
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == name
    }
    listed = set(module.__all__)
    assert len(listed) == len(module.__all__)
    assert defined <= listed, "public functions and classes that __all__ leaves out"
    constants = {attribute for attribute in listed - defined if attribute.isupper()}
    if not hasattr(module, "__path__") and not name.endswith(".registry"):  # they show others'
        assert listed - defined == constants, "listed, but neither defined here nor a constant"
    assert all(hasattr(module, attribute) for attribute in listed)


@pytest.mark.parametrize("name", [name for page in REFERENCE.values() for name in page])
def test_public_functions_have_examples(name: str) -> None:
    """Ruff asks for all docstrings; examples are for what users call."""
    if name.startswith(MISSING):
        pytest.skip("needs an extra")
    module = importlib.import_module(name)
    for attribute in module.__all__:
        value = getattr(module, attribute)
        if inspect.isfunction(value):
            assert ">>>" in (inspect.getdoc(value) or ""), f"{name}.{attribute} has no example"


def test_the_package_shows_what_users_need_first() -> None:
    assert set(densehash.__all__) == {
        "AGH",
        "DSH",
        "DensehashError",
        "ITQ",
        "Index",
        "KLSH",
        "LSH",
        "PCAH",
        "Refined",
        "SIKH",
        "SpH",
        "__version__",
        "device",
        "hamming",
        "load_hasher",
    }
    assert all(hasattr(densehash, name) for name in densehash.__all__)


def test_names_that_the_package_once_listed_are_still_there() -> None:
    from densehash import (
        FileError,
        HashingNeighbors,
        InputError,
        MissingExtraError,
        bits,
        errors,
        index,
        pack,
        unpack,
    )

    assert (pack, unpack) == (bits.pack, bits.unpack)
    assert HashingNeighbors is index.HashingNeighbors
    assert issubclass(FileError, errors.DensehashError)
    assert issubclass(InputError, errors.DensehashError)
    assert issubclass(MissingExtraError, errors.DensehashError)


def test_modules_were_found() -> None:
    assert {"densehash.bits", "densehash.checks", "densehash.hamming"} <= set(MODULES)
