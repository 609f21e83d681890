"""The results of a night as a page (GitHub's Markdown), and as annotations of a workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ackproof_reports.summaries import markdown
from night.results import JobResult, ShardResult

_MOST_LINES = 40


def page(shards: Sequence[ShardResult]) -> str:
    """Return the results of all shards of a night as one Markdown page: the problems first, then every job."""
    jobs = sorted((job for shard in shards for job in shard.jobs), key=lambda job: job.name)
    wrong = [(job, problems) for job in jobs if (problems := list(job.problems()))]
    cases = sum(len(job.cases) for job in jobs)
    date = shards[0].date if shards else "unknown"
    said = f"{len(jobs)} jobs, {cases} cases, {sum(job.seconds for job in jobs) / 60:.0f} minutes of running"
    lines = [f"## The night of {date}", ""]
    lines += [f"{'❌' if wrong or not jobs else '✅'} {said}; {len(wrong)} with a problem.", ""]
    for job, problems in wrong:
        lines += [
            f"### {markdown(job.name)}",
            "",
            *(f"- {markdown(problem)}" for problem in problems[:_MOST_LINES]),
        ]
        if len(problems) > _MOST_LINES:
            lines.append(f"- and {len(problems) - _MOST_LINES} more")
        lines += ["", f"    {job.command}", ""]
    lines += _table(jobs)
    for job in jobs:
        if job.survivors:
            said = f"{markdown(job.name)}: {len(job.survivors)} that no test noticed"
            lines += ["", f"<details><summary>{said}</summary>", ""]
            lines += [f"- {markdown(survivor)}" for survivor in job.survivors]
            lines += ["", "</details>"]
    refused = sorted({pair for shard in shards for pair in shard.refused})
    if refused:
        lines += ["", f"<details><summary>{len(refused)} that cannot be, by validation</summary>", ""]
        lines += [f"- {markdown(name)}: {markdown(why)}" for name, why in refused]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def annotations(shards: Sequence[ShardResult]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each problem: an error, at the experiment's file if the job has one."""
    for shard in shards:
        for job in shard.jobs:
            for problem in job.problems():
                where = f"file={_property(job.file)},line=1," if job.file else ""
                yield f"::error {where}title={_property(job.name)}::{_data(problem)}"


def _table(jobs: Sequence[JobResult]) -> list[str]:
    lines = ["| job | cases | found | seconds | |", "|---|--:|---|--:|---|"]
    for job in jobs:
        found: dict[str, int] = {}
        for case in job.cases:
            for name, count in case.counts.items():
                found[name] = found.get(name, 0) + count
        shown = ", ".join(f"{count} {name}" for name, count in found.items() if name in _SHOWN) or "—"
        sign = "❌" if any(job.problems()) else "✅"
        lines.append(f"| {markdown(job.name)} | {len(job.cases)} | {shown} | {job.seconds:.0f} | {sign} |")
    return lines


_SHOWN = ("lost", "overwritten", "displaced", "vanished", "duplicate", "surfaced", "reordered")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
