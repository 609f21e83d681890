"""Claims: sentences about Kafka, and the runs that confirm or refute them."""
