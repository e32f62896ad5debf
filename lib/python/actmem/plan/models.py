# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Models by name (models.json), or from a config.json of Hugging Face. A model lists what each
layer computes; decoder.py makes a function of the model.

    model = models.find("llama-3.3-70b")
    model = models.load("config.json")

A missing field without a default, or an unknown field, is an error, because such a field can change
the computation. The error message names the field.
"""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from actmem.plan._configs import Fields, parser_of
from actmem.plan._files import read_text
from actmem.plan._structure import (Attention, Experts, Group, Layer, Model, ModelError, Vision,
                                    grouped)

__all__ = ["Attention", "Experts", "Group", "Layer", "Model", "ModelError", "Vision", "find",
           "from_config", "grouped", "load", "names"]

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")


def from_config(config: Mapping[str, Any], name: str = "config",
                ignore: Iterable[str] = ()) -> Model:
    """Makes a model from a configuration of Hugging Face, as json.load() returns it.

    Args:
      config: The fields of config.json.
      name: The model's name; error messages begin with it.
      ignore: Unknown fields that do not change the computation.

    Raises:
      ModelError: A field is missing, unknown or invalid. The error message names the field.
    """
    fields = Fields(config, name, ignore)
    return dataclasses.replace(parser_of(fields)(fields), name=name)


def load(path: str | os.PathLike[str], ignore: Iterable[str] = ()) -> Model:
    """Makes a model from a file config.json; see from_config()."""
    try:
        config = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the model of {os.fspath(path)}: {error}") from None
    model = from_config(config, os.fspath(path), ignore)
    return dataclasses.replace(model, source=os.fspath(path))


def _rows() -> list[dict[str, Any]]:
    with open(TABLE, encoding="utf-8") as file:
        rows: list[dict[str, Any]] = json.load(file)["models"]
    return rows


def names() -> list[str]:
    """Returns the names of the models in models.json."""
    return [row["name"] for row in _rows()]


def find(name: str) -> Model:
    """Returns the model `name` of models.json.

    Raises:
      ModelError: models.json has no such model. The error message lists all models of models.json.
    """
    for row in _rows():
        if row["name"] == name:
            return dataclasses.replace(from_config(row["config"], name), source=row["source"],
                                       parameters=row["parameters"])
    raise ModelError(f"unknown model {name!r}: use one of {', '.join(names())}, or a config.json "
                     "of Hugging Face (--config FILE)")
