"""Searches every interleaving of steps in a small model, breadth first (`search.py`): of a Kafka partition (`world.py`)
and of other protocols."""
