"""Coherence: checks that files of a run agree where they describe the same thing. A contradiction makes the verdict
INCONCLUSIVE.

Each file holds the rules about one kind of fact: a condition over joined facts, and a sentence that names both sides. A
rule reads `Facts` and writes nothing; a rule that a healthy run breaks is wrong. What Kafka may do is decided elsewhere
(reference implementation, `judge/checks`).
"""
