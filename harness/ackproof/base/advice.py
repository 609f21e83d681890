"""Messages to a user about wrong input. Their parts stay readable as fields: the fact, and what to do about it."""

from __future__ import annotations


class Advice(str):
    """A message as text, which keeps its parts. Exceptions and pydantic pass it on as any text.

    `fact`: what is wrong. `hint`: what to do about it; "" for nothing. `suggestion`: the name that the user probably
    meant; "" for none. `is_shape`: True if the fact names only what was expected (`expected a list`). The code that
    read the value then appends it (`, not the number 5`). If `fact` is an `Advice`, its parts apply where the caller
    gives none.
    """

    fact: str
    hint: str
    suggestion: str
    is_shape: bool

    def __new__(
        cls, fact: str, hint: str = "", *, suggestion: str | None = None, is_shape: bool = False
    ) -> Advice:
        if isinstance(fact, Advice):
            hint, suggestion = hint or fact.hint, suggestion or fact.suggestion
            is_shape, fact = is_shape or fact.is_shape, fact.fact
        meant = f" (did you mean '{suggestion}'?)" if suggestion else ""
        self = super().__new__(cls, f"{fact}; {hint}{meant}" if hint else f"{fact}{meant}")
        self.fact, self.hint, self.suggestion, self.is_shape = fact, hint, suggestion or "", is_shape
        return self

    def after(self, beginning: str) -> Advice:
        """Return the message with `beginning` before its fact; its `is_shape` is False."""
        return Advice(f"{beginning}{self.fact}", self.hint, suggestion=self.suggestion)

    @property
    def remedy(self) -> str | None:
        """The suggestion as a question, else the hint; None if there is neither."""
        return f"did you mean '{self.suggestion}'?" if self.suggestion else self.hint or None


def expected(what: str) -> Advice:
    """Return the message about a value of another shape than `what`, which is in words, such as `a list`. Its
    `is_shape` is True."""
    return Advice(f"expected {what}", is_shape=True)


def advice_of(error: Exception) -> Advice:
    """Return the message of an exception with its parts. If the exception was not raised with an `Advice`, its whole
    text is the fact."""
    return error.args[0] if error.args and isinstance(error.args[0], Advice) else Advice(str(error))
