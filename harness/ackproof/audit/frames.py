"""Findings as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.pandas.types import from_arrow_schema

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS


def findings_frame(spark: SparkSession, directories: Sequence[Path]) -> DataFrame:
    """The findings of audited directories, with a column `directory`; lazily, as Spark reads Parquet."""
    schema = from_arrow_schema(FINDINGS)
    frames = [
        spark.read.schema(schema)
        .parquet(str(CaseDir(directory).findings.absolute()))
        .withColumn("directory", F.lit(str(directory)))
        for directory in directories
    ]
    if not frames:
        return spark.createDataFrame([], schema).withColumn("directory", F.lit(""))
    return reduce(DataFrame.unionByName, frames)
