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
MISSING = tuple(name for name, package in NEEDED.items() if not importlib.util.find_spec(package))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(densehash.__path__, "densehash.")
    if not module.name.rpartition(".")[2].startswith("_") and not module.name.startswith(MISSING)
)

# What these define is for the package itself: it is documented, and tests show how it is called.
# Examples are for what users call, which the packages show.
INSIDE = tuple(f"densehash.{room}." for room in ("datasets", "distributed", "index", "store"))


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
    if not hasattr(module, "__path__"):  # a package shows names of its modules
        assert listed - defined == constants, "listed, but neither defined here nor a constant"
    assert all(hasattr(module, attribute) for attribute in listed)


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_have_docstrings_and_examples(name: str) -> None:
    module = importlib.import_module(name)
    if name.startswith("densehash.cli"):  # its users read --help
        return
    if name.startswith("densehash.gpu"):  # no example runs without one
        return
    inside = name.startswith(INSIDE) and name != "densehash.distributed.spark"
    for attribute in module.__all__:
        value = getattr(module, attribute)
        if inspect.isfunction(value):
            said = inspect.getdoc(value) or ""
            assert said, f"{name}.{attribute} has no docstring"
            assert inside or ">>>" in said, f"{name}.{attribute} has no example"


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert set(densehash.__all__) == {
        "AGH",
        "DSH",
        "DensehashError",
        "FileError",
        "HashingNeighbors",
        "ITQ",
        "Index",
        "InputError",
        "KLSH",
        "LSH",
        "MissingExtraError",
        "PCAH",
        "Refined",
        "SIKH",
        "SpH",
        "__version__",
        "bits",
        "device",
        "hamming",
        "load_hasher",
        "pack",
        "unpack",
    }
    assert all(hasattr(densehash, name) for name in densehash.__all__)


def test_modules_were_found() -> None:
    assert {"densehash.bits", "densehash.checks", "densehash.hamming"} <= set(MODULES)
