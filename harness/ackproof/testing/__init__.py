"""The pytest plugin: experiment files as tests (`items`); a real cluster and audited clients as fixtures.

`plugin` has the hooks. `cluster` is the fixture `kafka_cluster`, with faults as `with` blocks (`faults`). `ledger` is
the fixture `ledger`: `clients` records what the user's own clients do in a `book`, and `evidence` reads the topics
back and audits them.
"""
