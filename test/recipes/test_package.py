"""The import names of the recipes, and that they cost nothing until they are used."""

import importlib

import cann.recipes.train
import pytest

import torch_cann.recipes.train


def test_cann_recipes_is_the_same_package() -> None:
    assert cann.recipes.train is torch_cann.recipes.train
    assert importlib.import_module("cann.recipes.train.trainer") is importlib.import_module(
        "torch_cann.recipes.train.trainer"
    )


def test_every_public_name_is_there() -> None:
    for name in cann.recipes.train.__all__:
        assert getattr(cann.recipes.train, name).__name__ == name
        assert getattr(cann.recipes.train, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'Trainer'; it has AdvancedTrainer, AutoMixedPrecision"):
        cann.recipes.train.Trainer  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"cann\.recipes\.inference"):
        importlib.import_module("cann.recipes.inference")


def test_importing_loads_nothing_before_it_is_used(run_python) -> None:
    code = """
import sys, torch, cann
before = {name for name in sys.modules if "recipes" in name}
import cann.recipes.train
new = {name for name in sys.modules if name.startswith("torch_cann.recipes.train.")}
print(before, new)
"""
    assert run_python(code) == "set() set()"
