"""Checks of which a verdict is made: each file examines one subject, as a pure function of the facts, and yields
opinions."""
