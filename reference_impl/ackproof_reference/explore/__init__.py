"""Every interleaving of a small scope, breadth first (`search.py`), of the worlds in `scope.py` and beside it."""
