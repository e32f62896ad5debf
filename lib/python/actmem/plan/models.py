# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Models by name (models.json) or from a config.json of Hugging Face, as one structure: what
each layer computes. decoder.py makes a function of it.

    model = models.find("llama-3.3-70b")
    model = models.load("config.json")

A config.json is taken as a whole: a field that is missing and has no default, and one that
is not known here, are errors that name it, as either may change what is computed.
"""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from actmem.plan._configs import Fields, parser_of
from actmem.plan._structure import (Attention, Experts, Group, Layer, Model, ModelError, Vision,
                                    grouped)

__all__ = ["Attention", "Experts", "Group", "Layer", "Model", "ModelError", "Vision", "find",
           "from_config", "grouped", "load", "names"]

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")


def from_config(config: Mapping[str, Any], name: str = "config",
                ignore: Iterable[str] = ()) -> Model:
    """The model of a configuration of Hugging Face, as an object of json.load().

    Args:
      config: The fields of config.json.
      name: The model's name; errors begin with it.
      ignore: Fields that are not known here and change nothing.

    Raises:
      ModelError: A field is missing, not known or has no sense; the error names it.
    """
    fields = Fields(config, name, ignore)
    return dataclasses.replace(parser_of(fields)(fields), name=name)


def load(path: str | os.PathLike[str], ignore: Iterable[str] = ()) -> Model:
    """The model of a file config.json; see from_config()."""
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the model of {os.fspath(path)}: {error}") from None
    model = from_config(config, os.fspath(path), ignore)
    return dataclasses.replace(model, source=os.fspath(path))


def _rows() -> list[dict[str, Any]]:
    with open(TABLE, encoding="utf-8") as file:
        rows: list[dict[str, Any]] = json.load(file)["models"]
    return rows


def names() -> list[str]:
    """The models of the table."""
    return [row["name"] for row in _rows()]


def find(name: str) -> Model:
    """The model of that name in the table.

    Raises:
      ModelError: There is none; the error has those that there are.
    """
    for row in _rows():
        if row["name"] == name:
            return dataclasses.replace(from_config(row["config"], name), source=row["source"],
                                       parameters=row["parameters"])
    raise ModelError(f"no model {name!r}: there are {', '.join(names())}, and any config.json "
                     "of Hugging Face (--config FILE)")
