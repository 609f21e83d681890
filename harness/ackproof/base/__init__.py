"""Code that every package builds on: child processes, waiting, interrupts, exceptions, units, and the environment of
the process.

Code belongs here if it knows nothing of Kafka and more than one package uses it.
"""
