"""Kafka's replication protocol in plain Python: pure steps `(state, event) → (state, messages)`, and their explorer.

Standard library only. Begin with README.md in this folder, which follows one acknowledged record through the code.
"""
