"""Confidence intervals, compared with a plain second implementation and with the known truth of simulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import scipy  # its `stats` takes 1.5 s to load, and is loaded at first use
from hypothesis import given
from hypothesis import strategies as st

from ackproof.quantities.quantity import Value
from ackproof.repeats.decide import contrast_groups, decide, looks, repeats_needed
from ackproof.repeats.demand import Contrast, Demand, Statistic
from ackproof.repeats.intervals import Estimate, estimate, ranks
from ackproof.rundir.bounds import Unit

MEAN, MEDIAN, P95 = (Statistic.named(word) or Statistic("") for word in ("mean", "median", "p95"))
NUMBERS = st.floats(0, 1e6, allow_subnormal=False)


def exact(numbers: list[float]) -> list[Value]:
    return [Value.exactly(float(one)) for one in numbers]


@st.composite
def intervals(draw: st.DrawFn, least: int = 2) -> tuple[list[float], list[Value]]:
    """Strategy for (true numbers, values known of them). Each value is exact, a range, or without an upper bound."""
    truth = draw(st.lists(NUMBERS, min_size=least, max_size=40))
    known = []
    for one in truth:
        kind = draw(st.sampled_from(["exact", "between", "cut"]))
        below, above = draw(NUMBERS), draw(NUMBERS)
        low = one if kind == "exact" else max(0.0, one - below)
        known.append(Value(low, {"exact": one, "between": one + above, "cut": math.inf}[kind]))
    return truth, known


def plainly(count: int, share: Fraction, confidence: Fraction) -> tuple[int, int] | None:
    """Return the right ranks, by trying all pairs with exact fractions; None if no pair bounds both sides."""
    mass = [comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    found = [
        (upper - lower, abs(sum(mass[:lower]) - sum(mass[upper:])), lower, upper)
        for lower in range(1, count + 1)
        for upper in range(lower + 1, count + 1)
        if sum(mass[lower:upper]) >= confidence
    ]
    return min(found)[2:] if found else None


@pytest.mark.parametrize("word", ["p1", "p5", "p10", "p25", "median", "p75", "p90", "p95", "p99"])
@pytest.mark.parametrize("bound", ["< 6s", "> 6s", "in 1s..6s"])
def test_the_repeats_that_are_needed_bound_the_interval_and_one_fewer_does_not(word: str, bound: str) -> None:
    demand = Demand.parse(f"{word} {bound}", Unit.SECONDS)
    needed = repeats_needed(demand)

    def bounded(count: int) -> bool:
        found = estimate(exact([2.0 + one / 1000 for one in range(count)]), demand.statistic)
        below, above = found.low > 0, math.isfinite(found.high)
        return (below or bound == "< 6s") and (above or bound == "> 6s")

    assert needed == 2 or not bounded(needed - 1)
    assert all(bounded(count) for count in range(needed, needed + 80))


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10), Fraction(19, 20)])
@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 12, 20, 37, 58, 59, 60, 73])
def test_ranks_are_those_of_all_pairs(count: int, share: Fraction) -> None:
    found, told = plainly(count, share, Fraction(19, 20)), ranks(count, float(share), 0.95)
    if found is None:
        assert told[0] == 0 or told[1] == count + 1
    else:
        assert told == found


def test_how_many_repeats_bound_a_quantile() -> None:
    """From tables: 6 repeats bound a median, 59 a 95th percentile. With fewer, one side is unbounded."""
    assert (ranks(5, 0.5, 0.95), ranks(6, 0.5, 0.95)) == ((0, 6), (1, 6))
    assert ranks(58, 0.95, 0.95)[1] == 59
    assert ranks(59, 0.95, 0.95) == (50, 59)
    assert ranks(20, 0.95, 0.95) == (17, 21)


@given(st.lists(NUMBERS, min_size=2, max_size=40))
def test_the_mean_is_that_of_students_test(numbers: list[float]) -> None:
    found = estimate(exact(numbers), MEAN)
    assert found.seen.low == found.seen.high == pytest.approx(np.mean(numbers))
    if np.std(numbers) > 1e-6 * (1 + max(numbers)):
        plain = scipy.stats.ttest_1samp(numbers, 0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((max(0, plain.low), plain.high))


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.99, 0.123]))
def test_the_quantile_that_was_seen(numbers: list[float], share: float) -> None:
    found = estimate(exact(numbers), Statistic("p", share)).seen.low
    assert found == pytest.approx(np.quantile(numbers, share, method="averaged_inverted_cdf"))


@pytest.mark.parametrize("statistic", [MEAN, MEDIAN, P95], ids=lambda one: one.name)
@given(drawn=intervals())
def test_what_is_known_in_part_is_never_narrower_than_the_truth(
    statistic: Statistic, drawn: tuple[list[float], list[Value]]
) -> None:
    """For quantiles, the interval of partly known values contains that of the true numbers. For a mean only the
    estimate is compared, because its interval also depends on the scatter."""
    truth, known = drawn
    whole, part = estimate(exact(truth), statistic), estimate(known, statistic)
    near = 1e-9 * (1 + max(truth))
    assert part.seen.low - near <= whole.seen.low <= part.seen.high + near
    assert part.low <= part.seen.low + near
    assert part.high >= part.seen.high - near
    if statistic is not MEAN:
        assert part.low <= whole.low <= whole.high <= part.high
    elif any(one.high == math.inf for one in known):
        assert part.high == math.inf


@given(st.lists(NUMBERS, min_size=2, max_size=20), st.lists(NUMBERS, min_size=2, max_size=20))
def test_a_difference_is_that_of_welchs_test(left: list[float], right: list[float]) -> None:
    found = contrast_groups(exact(left), exact(right), Contrast.MINUS, MEAN)
    if min(np.std(left), np.std(right)) > 1e-3 * (1 + max(*left, *right)):
        plain = scipy.stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-6, abs=1e-6)


@given(st.lists(NUMBERS, min_size=2, max_size=20), st.lists(NUMBERS, min_size=2, max_size=20))
def test_a_ratio_is_that_of_welchs_test_on_a_logarithmic_scale(left: list[float], right: list[float]) -> None:
    """The numbers, scaled to mean 1 and shifted, give Welch's interval of the logarithm of the ratio."""
    found = contrast_groups(exact(left), exact(right), Contrast.OVER, MEAN)
    if min(np.std(left), np.std(right)) > 1e-3 * (1 + max(*left, *right)):
        one, two = (np.array(each) / np.mean(each) + np.log(np.mean(each)) for each in (left, right))
        plain = scipy.stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.95)
        assert found.seen.low == found.seen.high == pytest.approx(np.mean(left) / np.mean(right))
        if max(map(abs, plain)) < 600:
            assert (found.low, found.high) == pytest.approx((np.exp(plain.low), np.exp(plain.high)), rel=1e-6)


def test_medians_beside_each_other_err_by_what_each_may_err_by() -> None:
    """The interval of a median of six numbers is their whole range: 10 (3 less, 12 more) and 20 (5 less, 4 more).
    Distances add up as squares: 3 and 4 to 5, 12 and 5 to 13."""
    left, right = [7.0, 9, 10, 10, 12, 22], [15.0, 18, 20, 20, 22, 24]
    found = contrast_groups(exact(left), exact(right), Contrast.MINUS, MEDIAN)
    assert (found.seen, found.low, found.high) == (Value.exactly(-10), -15, 3)
    one, other = (exact([2.0**power for power in each]) for each in (left, right))
    found = contrast_groups(one, other, Contrast.OVER, MEDIAN)
    assert found.seen == Value.exactly(2**-10)
    assert (found.low, found.high) == (pytest.approx(2**-15), pytest.approx(2**3))


@pytest.mark.parametrize("statistic", [MEAN, MEDIAN], ids=lambda one: one.name)
@given(left=intervals(), right=intervals())
def test_what_is_cut_is_open_beside_another(
    statistic: Statistic, left: tuple[list[float], list[Value]], right: tuple[list[float], list[Value]]
) -> None:
    for how in Contrast:
        found = contrast_groups(left[1], right[1], how, statistic)
        assert found.low <= found.seen.low or math.isclose(found.low, found.seen.low, rel_tol=1e-9)
        assert found.high >= found.seen.high or math.isclose(found.high, found.seen.high, rel_tol=1e-9)
        if statistic is MEAN and any(one.high == math.inf for one in left[1]):
            assert found.high == math.inf
        if statistic is MEAN and any(one.high == math.inf for one in right[1]):
            assert found.low in (0.0, -math.inf)


@pytest.mark.parametrize("statistic", [MEAN, MEDIAN], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("left", "right", "over", "minus"),
    [
        ((2, 3), (4, 8), (0.25, 0.75), (-6, -1)),
        ((2, math.inf), (4, 8), (0.25, math.inf), (-6, math.inf)),
        ((2, 3), (0, 8), (0.25, math.inf), (-6, 3)),
        ((2, 3), (4, math.inf), (0, 0.75), (-math.inf, -1)),
        ((0, 3), (4, 8), (0, 0.75), (-8, -1)),
        ((2, 3), (0, 0), (math.inf, math.inf), (2, 3)),
        ((0, 0), (0, 0), (0, math.inf), (0, 0)),
    ],
)
def test_what_was_seen_of_one_beside_another(
    statistic: Statistic,
    left: tuple[float, float],
    right: tuple[float, float],
    over: tuple[float, float],
    minus: tuple[float, float],
) -> None:
    """The lowest value takes the first group's lower end and the second's upper end; the highest, the others."""
    for how, seen in ((Contrast.OVER, over), (Contrast.MINUS, minus)):
        assert contrast_groups([Value(*left)] * 3, [Value(*right)] * 2, how, statistic).seen == Value(*seen)


Draw = Callable[[np.random.Generator, int], np.ndarray]
DRAWN: dict[str, tuple[Draw, float, float, float]] = {
    # how, mean, median, 95th percentile
    "normal": (lambda rng, count: rng.normal(9, 1, count), 9, 9, 9 + 1.6448536),
    "long tail": (
        lambda rng, count: 1 + rng.exponential(1, count), 2, 1 + math.log(2), 1 + math.log(20)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_intervals_cover_as_often_as_they_say(name: str) -> None:
    """600 draws of 20 and 60 numbers; their share of covering intervals has a standard error of 0.009. The bound is 95
    % less 2.5 times that, and lower for the mean of a long-tailed distribution (see the documentation)."""
    draw, mean, median, high = DRAWN[name]
    rng = np.random.default_rng(18)
    held = {"mean": 0, "median": 0, "p95": 0, "over": 0, "minus": 0, "medians": 0}
    for _ in range(600):
        one, two, many = (exact(list(draw(rng, count))) for count in (20, 20, 60))
        for key, found, truth in (
            ("mean", estimate(one, MEAN), mean),
            ("median", estimate(one, MEDIAN), median),
            ("p95", estimate(many, P95), high),
            ("over", contrast_groups(one, two, Contrast.OVER, MEAN), 1),
            ("minus", contrast_groups(one, two, Contrast.MINUS, MEAN), 0),
            ("medians", contrast_groups(one, two, Contrast.OVER, MEDIAN), 1),
        ):
            held[key] += found.low <= truth <= found.high
    shares = {key: count / 600 for key, count in held.items()}
    assert min(shares["median"], shares["p95"], shares["medians"], shares["minus"]) >= 0.928, shares
    assert shares["over"] >= 0.92, shares
    assert shares["mean"] >= (0.93 if name == "normal" else 0.88), shares


def test_resampling_covers_less_where_repeats_are_few() -> None:
    """Shows why the ratio of means is not resampled: with four repeats, resampling covers the truth less often."""
    rng = np.random.default_rng(18)
    kept = resampled = 0
    for _ in range(300):
        one, two = 1 + rng.exponential(1, 4), 1 + rng.exponential(1, 4)
        found = contrast_groups(exact(list(one)), exact(list(two)), Contrast.OVER, MEAN)
        kept += found.low <= 1 <= found.high
        ratios = one[rng.integers(0, 4, (400, 4))].mean(1) / two[rng.integers(0, 4, (400, 4))].mean(1)
        low, high = np.quantile(ratios, [0.025, 0.975])
        resampled += bool(low <= 1 <= high)
    assert kept / 300 >= 0.93
    assert resampled / 300 <= 0.89


def test_identical_settings_differ_seldom() -> None:
    """Of 20 quantities of two groups with equal settings, the 95 % intervals may separate at most one."""
    rng = np.random.default_rng(7)
    apart = 0
    for number in range(20):
        draw = DRAWN["long tail" if number % 2 else "normal"][0]
        found = contrast_groups(exact(list(draw(rng, 20))), exact(list(draw(rng, 20))), Contrast.OVER, MEAN)
        apart += not found.low <= 1 <= found.high
    assert apart <= 1


def test_three_times_as_long_is_told_from_the_same() -> None:
    rng = np.random.default_rng(7)
    fast, slow = (exact(list(rng.normal(middle, 1, 5))) for middle in (5, 15))
    assert decide(Demand.parse("mean < 8s", Unit.SECONDS), [fast]).holds is True
    assert decide(Demand.parse("mean < 8s", Unit.SECONDS), [slow]).holds is False
    assert decide(Demand.parse("mean of a over b in 2..4", Unit.SECONDS), [slow, fast]).holds is True
    assert decide(Demand.parse("mean of a over b < 2", Unit.SECONDS), [slow, fast]).holds is False
    assert decide(Demand.parse("mean of a minus b in 8s..12s", Unit.SECONDS), [slow, fast]).holds is True


@pytest.mark.parametrize(
    ("text", "numbers", "enough"),
    [("p95 < 6s", [1, 2, 3], 59), ("median < 6s", [1, 2, 3], 6), ("median < 2500ms", [1, 2, 3, 4], None)],
)
def test_how_many_repeats_would_decide(text: str, numbers: list[float], enough: int | None) -> None:
    found = decide(Demand.parse(text, Unit.SECONDS), [exact(numbers)])
    assert (found.holds, found.enough) == (None, enough)


def test_how_many_repeats_of_each_would_tell_two_cases_apart() -> None:
    demand = Demand.parse("median of a over b < 2", Unit.SECONDS)
    found = decide(demand, [exact([3, 3.1, 3.2]), exact([2, 2.1])])
    assert (found.holds, found.enough) == (None, 6)


def test_so_many_as_would_decide_do_decide() -> None:
    """For most draws, 1.25 times the number of repeats in `Decision.enough` decides the expectation."""
    rng = np.random.default_rng(18)
    demand = Demand.parse("mean < 5500ms", Unit.SECONDS)
    told = decided = 0
    for _ in range(100):
        found = decide(demand, [exact(list(rng.normal(5, 1, 6)))])
        if found.enough is not None:
            told += 1
            more = exact(list(rng.normal(5, 1, max(24, found.enough * 5 // 4))))
            decided += decide(demand, [more]).holds is not None
    assert told >= 40
    assert decided / told >= 0.5


def test_a_value_that_is_open_does_not_decide() -> None:
    """A value without an upper end decides only if its lower end is above the bound."""
    long = [Value(7, math.inf) for _ in range(20)]
    short = [Value(1, math.inf) for _ in range(20)]
    for text in ("mean < 6s", "median < 6s", "p95 < 6s", "max < 6s"):
        demand = Demand.parse(text, Unit.SECONDS)
        assert decide(demand, [long]).holds is False
        assert decide(demand, [short]) == decide(demand, [short])
        assert (decide(demand, [short]).holds, decide(demand, [short]).enough) == (None, None)


@pytest.mark.parametrize("statistic", [MEAN, MEDIAN], ids=lambda one: one.name)
def test_of_a_value_that_is_unknown_neither_end_is_known(statistic: Statistic) -> None:
    found = estimate([Value.unknown("nobody looked"), Value.exactly(1)], statistic)
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_a_decision_tells_the_interval_that_it_is_made_of() -> None:
    left, right = exact([1, 2, 4]), exact([2, 3, 3])
    assert decide(Demand.parse("mean < 9s", Unit.SECONDS), [left]).estimate == estimate(left, MEAN)
    beside_it = decide(Demand.parse("mean of a minus b < 9s", Unit.SECONDS), [left, right], 0.9).estimate
    assert beside_it == contrast_groups(left, right, Contrast.MINUS, MEAN, 0.9)


def test_the_greatest_is_what_was_seen() -> None:
    assert decide(Demand.parse("max < 6s", Unit.SECONDS), [exact([1, 5])]).holds is True
    assert decide(Demand.parse("max < 6s", Unit.SECONDS), [exact([1, 7])]).holds is False


def test_looking_again_and_again_errs_no_more_often() -> None:
    """The true mean is on the bound, so each decision is an error. All tests together may err once in twenty."""
    schedule = looks(5, 40)
    assert [count for count, _ in schedule] == [5, 10, 20, 40]
    assert sum(1 - confidence for _, confidence in schedule) == pytest.approx(0.05)
    rng = np.random.default_rng(18)
    wrong = naive = 0
    for _ in range(400):
        drawn = exact(list(rng.normal(5, 1, 40)))
        careful = [estimate(drawn[:count], MEAN, sure) for count, sure in schedule]
        usual = [estimate(drawn[:count], MEAN) for count, _ in schedule]
        wrong += not all(one.low <= 5 <= one.high for one in careful)
        naive += not all(one.low <= 5 <= one.high for one in usual)
    assert wrong / 400 <= 0.07
    assert naive / 400 > 0.08


def test_rare_slow_repeats_are_waited_for() -> None:
    """One repeat in ten takes ten times as long, and the first five often contain none. So an early test decides no
    mean below `EARLY_MEAN` repeats; other statistics are not delayed."""
    rng = np.random.default_rng(18)
    mean, median = (Demand.parse(f"{word} < 1.9s", Unit.SECONDS) for word in ("mean", "median"))
    wrong = 0
    for _ in range(100):
        drawn = exact(list(np.where(rng.random(60) < 0.1, 10.0, 1.0) * rng.normal(1, 0.05, 60)))
        told = (decide(mean, [drawn[:count]], sure).holds for count, sure in looks(5, 60))
        wrong += any(holds is not None for holds in told)
    assert wrong / 100 <= 0.25  # 0.62 where five may decide
    even = exact([1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03])
    early, last = looks(5, 60)[0][1], looks(5, 60)[-1][1]
    assert [decide(mean, [even[:count]], early).holds for count in (10, 11)] == [None, True]
    assert decide(mean, [even[:5]], early).enough == 11
    assert decide(mean, [even[:5]], last).holds is True
    assert decide(median, [even], early).holds is True


@pytest.mark.parametrize("count", [2, 5, 6, 20])
@pytest.mark.parametrize("number", [1.0, 0.1, 0.0])
def test_few_that_are_alike_bound_no_mean(count: int, number: float) -> None:
    """Two equal counts do not prove that the count is always equal. As many are needed as bound a median."""
    alike = exact([number] * count)
    scattered = exact([float(1 + one % 3) for one in range(count)])
    few = count < 6
    assert estimate(alike, MEAN) == Estimate(alike[0], 0 if few else number, math.inf if few else number)
    for how in Contrast:
        for pair in ((alike, scattered), (scattered, alike), (alike, alike)):
            found = contrast_groups(*pair, how, MEAN)
            open_ = (found.low, found.high) in ((-math.inf, math.inf), (0, math.inf))
            assert open_ is (few or (how is Contrast.OVER and number == 0)), (pair, how)
    if few:
        told = decide(Demand.parse("mean < 6s", Unit.SECONDS), [alike])
        assert (told.holds, told.enough) == (None, 6)
    assert estimate(alike, MEAN, 0.999).high == (number if count == 20 else math.inf)


def test_counts_that_are_alike_by_chance_are_not_told_apart() -> None:
    """Of comparisons of two counts of 1 or 2 each, one in eight would differ without the rule for equal numbers."""
    rng = np.random.default_rng(18)
    apart = 0
    for _ in range(300):
        found = contrast_groups(
            exact(list(1.0 + rng.integers(0, 2, 2))),
            exact(list(1.0 + rng.integers(0, 2, 2))),
            Contrast.OVER,
            MEAN,
        )
        apart += not found.low <= 1 <= found.high
    assert apart / 300 <= 0.05
