"""Every interleaving of a small scope, breadth first (`search.py`), of the world in `world.py` and of other
protocols.
"""
