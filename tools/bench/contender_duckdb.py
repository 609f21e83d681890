"""The contender `duckdb` of the benchmarks: the same audit in DuckDB, tuned by hand.

It uses all cores that it may, reads each file once into narrow tables, and packs an identity into one key of 8 bytes. A
window function runs only over rows that a cheaper test does not show to be in order."""

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
base.execute("""
CREATE TEMP TABLE strange AS
SELECT f.*, p.id IS NULL AS phantom, f.astray OR p.id IS NOT NULL AS misrouted
FROM f LEFT JOIN p USING (id) WHERE p.id IS NULL OR f.astray OR p.partition <> f.partition OR p.topic <> f.topic""")
count("phantom misrouted", "SELECT count(*) FILTER (phantom), count(*) FILTER (misrouted) FROM strange")
# One join of everything with everything; only what is not plain (acked, and found where the ack said) is kept.
base.execute("""
CREATE TEMP TABLE odd AS
SELECT p.id, p.topic, p.partition, outcome, p.pos AS acked, f.pos, f.id IS NULL AS missing
FROM p LEFT JOIN (SELECT * FROM f WHERE intact) f ON p.id = f.id AND p.partition = f.partition AND p.topic = f.topic
WHERE f.id IS NULL OR f.pos <> p.pos OR outcome <> 0""")
count("lost", "SELECT count(*) FROM odd WHERE missing AND outcome = 0")
count(
    "resurrected surfaced",
    """SELECT count(DISTINCT id) FILTER (outcome = 1), count(DISTINCT id) FILTER (outcome = 2)
       FROM odd WHERE NOT missing""",
)
count(
    "displaced",
    """SELECT count(DISTINCT id) FROM odd WHERE NOT missing AND outcome = 0 AND acked >= 0 AND NOT EXISTS (
         SELECT 1 FROM f WHERE f.id = odd.id AND f.partition = odd.partition AND f.topic = odd.topic
                           AND f.pos = odd.acked AND f.intact)""",
)
# Extra copies show in the join as a second row, or as one at another offset than the ack's.
base.execute("""
CREATE TEMP TABLE extra AS SELECT * FROM (
  SELECT id, topic, partition, pos, row_number() OVER (PARTITION BY id ORDER BY topic, partition, pos) AS number
  FROM f WHERE intact AND id IN (SELECT id FROM odd WHERE NOT missing UNION SELECT id FROM strange))
WHERE number > 1""")
count("duplicate", "SELECT count(*) FROM extra")
count(
    "overwritten",
    """SELECT count(DISTINCT odd.id) FROM odd JOIN f ON odd.topic = f.topic AND odd.partition = f.partition
         AND odd.acked = f.pos WHERE missing AND outcome = 0 AND f.intact""",
)
# Where no first copy is below the one before it, none is below the highest before it.
base.execute("""
CREATE TEMP TABLE inverted AS SELECT DISTINCT id >> 40 AS producer, topic, partition FROM (
  SELECT id, topic, partition, lag(id) OVER (PARTITION BY id >> 40, topic, partition ORDER BY pos) AS before
  FROM f ANTI JOIN extra USING (id, topic, partition, pos) WHERE intact) WHERE id < before""")
count(
    "reordered",
    """SELECT count(*) FILTER (id < highest) FROM (
         SELECT id, max(id) OVER (PARTITION BY id >> 40, topic, partition ORDER BY low
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
         FROM (SELECT f.id, f.topic, f.partition, min(f.pos) AS low
               FROM f SEMI JOIN inverted ON f.id >> 40 = producer AND f.topic = inverted.topic
                                        AND f.partition = inverted.partition
               JOIN p ON p.id = f.id AND p.topic = f.topic AND p.partition = f.partition
               WHERE intact GROUP BY ALL))""",
)
base.execute("""
CREATE TEMP TABLE unlike AS SELECT l.topic, l.partition, l.pos, l.id, f.id AS held
FROM l LEFT JOIN f USING (topic, partition, pos) WHERE f.id IS NULL OR f.id <> l.id""")
count(
    "vanished",
    """SELECT count(*) FROM (SELECT DISTINCT topic, partition, pos FROM unlike
         ANTI JOIN f USING (topic, partition, pos, id))""",
)
count(
    "conflict",
    """SELECT count(*) FROM (SELECT topic, partition, pos FROM unlike
         GROUP BY ALL HAVING count(held) > 0 OR count(DISTINCT id) > 1)""",
)
base.execute("""
CREATE TEMP TABLE steps AS SELECT topic, partition, before, pos FROM (
  SELECT topic, partition, pos,
         lag(pos) OVER (PARTITION BY reader, assignment, topic, partition ORDER BY read_seq) AS before FROM l)
WHERE pos <> before + 1""")
count("rewound", "SELECT count(*) FROM steps WHERE pos <= before")
count(
    "skipped",
    """SELECT count(*) FROM (
         SELECT DISTINCT f.topic, f.partition, f.pos FROM f
         JOIN (SELECT topic, partition, unnest(range(before + 1, pos)) AS pos FROM steps WHERE pos > before) gap
           ON f.topic = gap.topic AND f.partition = gap.partition AND f.pos = gap.pos
         JOIN p ON f.id = p.id AND f.topic = p.topic AND f.partition = p.partition WHERE f.intact)""",
)
print(json.dumps(counts))
