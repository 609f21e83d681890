"""What every package builds on: child processes, waiting, interrupts, the exception tree, units.

Code belongs here if it knows nothing of Kafka and has more than one user.
"""
