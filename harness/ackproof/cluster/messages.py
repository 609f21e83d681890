"""kafka-python, imported at its first use, and the messages of Kafka's protocol by their names.

kafka-python takes half a second to import, which nobody pays who only reads an experiment. It reads its schemas with
a function that Python 3.11 and 3.12 call deprecated (3.13 took that back): users who turn warnings into errors shall
not suffer for it. Messages that it does not know are made from Kafka's own schemas, in the folder `schemas`.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

_GROUPS: Final = ("admin", "consumer", "metadata", "producer", "sasl")
_LOADING: Final = threading.RLock()
"""Filters of warnings are the whole process's."""


@cache
def kafka_python(module: str) -> ModuleType:
    """A module of kafka-python's, which is untyped."""
    with _LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module(f"kafka.{module}")


@cache
def message(name: str) -> Any:  # noqa: ANN401 — kafka-python is untyped
    """The class of a message, such as `DescribeQuorumRequest`."""
    for group in _GROUPS:
        if (found := vars(kafka_python(f"protocol.{group}")).get(name)) is not None:
            return found
    base = kafka_python("protocol.api_message").ApiMessage
    with _LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return type(base)(name, (base,), {}, load_json="ackproof.cluster.schemas")
