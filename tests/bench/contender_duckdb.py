"""DuckDB, tuned: two threads, each file read once into narrow tables, one key of 8 bytes for an identity, and no
window over rows that a cheaper test shows to be in order."""

from __future__ import annotations

import json
import os
import sys
import tempfile

import duckdb

ledger = f"{sys.argv[1]}/ledger"
base = duckdb.connect()
base.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
base.execute("SET preserve_insertion_order = false")
base.execute(f"SET temp_directory = '{tempfile.gettempdir()}'")
base.execute(f"""
CREATE TEMP TABLE p AS SELECT (producer::BIGINT << 40) | seq AS id, topic, partition, outcome, "offset" AS pos
FROM read_parquet('{ledger}/produced/*/part-*.parquet', hive_partitioning = false);
CREATE TEMP TABLE f AS SELECT (producer::BIGINT << 40) | seq AS id, topic, partition, "offset" AS pos, intact,
    (origin_topic <> '' AND (origin_topic, origin_partition) <> (topic, partition)) AS astray, leader_epoch AS epoch
FROM read_parquet('{ledger}/consumed/*/part-*.parquet', hive_partitioning = false) WHERE phase = 1;
CREATE TEMP TABLE l AS SELECT (producer::BIGINT << 40) | seq AS id, topic, partition, "offset" AS pos,
    reader, assignment, read_seq, leader_epoch AS epoch
FROM read_parquet('{ledger}/consumed/*/part-*.parquet', hive_partitioning = false) WHERE phase = 0;
""")
counts: dict[str, int] = {}


def count(names: str, query: str) -> None:
    row = base.execute(query).fetchone()
    assert row is not None
    counts.update(zip(names.split(), map(int, row), strict=True))


count("corrupted", "SELECT count(*) FILTER (NOT intact) FROM f")
count(
    "phantom misrouted",
    """SELECT count(*) FILTER (p.id IS NULL),
              count(*) FILTER (f.astray OR p.topic <> f.topic OR p.partition <> f.partition)
       FROM f LEFT JOIN p USING (id)""",
)
base.execute("""
CREATE TEMP TABLE present AS
SELECT p.id, p.topic, p.partition, p.outcome, p.pos AS acked, min(f.pos) AS low, count(*) AS copies,
       bool_or(f.pos = p.pos) AS in_place
FROM p JOIN f ON p.id = f.id AND p.partition = f.partition AND p.topic = f.topic AND f.intact
GROUP BY ALL""")
count(
    "duplicate resurrected surfaced displaced",
    """SELECT coalesce(sum(copies - 1), 0), count(*) FILTER (outcome = 1), count(*) FILTER (outcome = 2),
              count(*) FILTER (outcome = 0 AND acked >= 0 AND NOT in_place) FROM present""",
)
base.execute("CREATE TEMP TABLE lost AS SELECT * FROM p ANTI JOIN present USING (id) WHERE outcome = 0")
count("lost", "SELECT count(*) FROM lost")
count(
    "overwritten",
    "SELECT count(DISTINCT lost.id) FROM lost JOIN f USING (topic, partition, pos) WHERE f.intact",
)
count(
    "reordered",
    """SELECT count(*) FILTER (id < highest) FROM (
         SELECT id, max(id) OVER (PARTITION BY id >> 40, topic, partition ORDER BY low
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM present)""",
)
count(
    "vanished",
    """SELECT count(*) FROM (SELECT DISTINCT topic, partition, pos FROM (
         SELECT * FROM l ANTI JOIN f USING (topic, partition, pos, id)))""",
)
count(
    "conflict",
    """SELECT count(*) FROM (SELECT DISTINCT l.topic, l.partition, l.pos
         FROM l JOIN f USING (topic, partition, pos) WHERE l.id <> f.id)""",
)
base.execute("""
CREATE TEMP TABLE steps AS SELECT topic, partition, before, pos FROM (
  SELECT topic, partition, pos,
         lag(pos) OVER (PARTITION BY reader, assignment, topic, partition ORDER BY read_seq) AS before FROM l)
WHERE pos <> before + 1""")
count("rewound", "SELECT count(*) FROM steps WHERE pos <= before")
count(
    "skipped",
    """SELECT count(*) FROM (SELECT DISTINCT f.topic, f.partition, f.pos FROM steps JOIN f
         ON f.topic = steps.topic AND f.partition = steps.partition AND f.pos > before AND f.pos < steps.pos
         SEMI JOIN present ON f.id = present.id WHERE f.intact)""",
)
print(json.dumps(counts))
