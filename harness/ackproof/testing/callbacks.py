"""The delivery callback that a producer was configured with: ours takes its place, and must call it."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

OnDelivery: TypeAlias = "Callable[[KafkaError | None, Message], object]"


class HiddenCallback(TypeError):
    """It cannot be told whether a producer has a delivery callback of its own."""


def configured_callback(producer: Producer) -> OnDelivery | None:
    """The `on_delivery` of the configuration that `producer` was made with, None if it has none.

    The client library does not tell. But the garbage collector knows what a producer holds: its delivery callback,
    then those for errors, throttling and statistics. Of all these only the first is called with two arguments.
    Raises `HiddenCallback` where that does not decide.
    """
    held = [one for one in gc.get_referents(producer) if _is_callback(one)]
    sure = [one for one in held if _takes(one, 2) and not _takes(one, 1)]
    if sure:
        found: OnDelivery = sure[0]
        return found
    if any(_takes(one, 2) for one in held):
        raise HiddenCallback(
            "a callback of this producer's configuration takes any arguments, so that it cannot be told from a "
            "delivery callback; hand the configuration over instead: ledger.producer({...})"
        )
    return None


def config_callback(config: Mapping[str, Any]) -> OnDelivery | None:
    """The same from a configuration."""
    found: OnDelivery | None = config.get("on_delivery")
    return found


def _is_callback(held: object) -> bool:
    # A subclass in Python refers to its class and its attributes too.
    return callable(held) and not isinstance(held, type)


def _takes(callback: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(callback).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True
