"""Just enough of a SparkContext to run the stages in this process, for tests that need thousands of audits."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable


class LocalRdd:
    """Partitions as lists. What Spark would send between processes is pickled here too."""

    def __init__(self, partitions: Iterable[list]) -> None:
        self._partitions = [pickle.loads(pickle.dumps(partition)) for partition in partitions]

    def mapPartitions(self, function: Callable) -> LocalRdd:  # noqa: N802 - pyspark's name
        return LocalRdd(list(function(iter(partition))) for partition in self._partitions)

    def partitionBy(self, count: int, number_of: Callable) -> LocalRdd:  # noqa: N802 - pyspark's name
        found = defaultdict(list)
        for partition in self._partitions:
            for key, value in partition:
                found[number_of(key) % count].append((key, value))
        return LocalRdd(found[number] for number in range(count))

    def values(self) -> LocalRdd:
        return LocalRdd([value for _, value in partition] for partition in self._partitions)

    def collect(self) -> list:
        return [element for partition in self._partitions for element in partition]


class LocalContext:
    """Stands in for a SparkContext."""

    def parallelize(self, elements: list, count: int) -> LocalRdd:
        assert len(elements) == count > 0, "Spark refuses to cut into nothing"
        return LocalRdd([element] for element in elements)
