"""What the pytest plugin does: experiment files as tests, a real cluster and an audited client as fixtures."""
