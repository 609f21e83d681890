"""The adapter of librdkafka (confluent-kafka): a producer process and a reader process in Python."""
