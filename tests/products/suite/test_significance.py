"""Equal models are seldom called different, real differences are found, and metrics are those of libraries."""

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn import metrics

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.products.suite import significance
from bert_jax.products.suite.significance import (
    LEVEL,
    Difference,
    adjusted,
    bootstrap_error,
    difference_text,
    pair_errors,
    row_sums,
    score_difference,
    scored_sums,
)
from bert_jax.products.suite.tasks import FineTuning
from bert_jax.run.config_files import load_config


def drawn(generator, skill, seeds, rows, hardness, wobble=0.3):
    """Right answers and those of a model's seeds: rows are hard or easy, seeds are lucky or not."""
    right = generator.integers(2, size=rows)
    luck = generator.normal(0.0, wobble, seeds)
    chances = 1 / (1 + np.exp(-(skill + luck[:, None] + hardness)))
    return right, np.where(generator.random((seeds, rows)) < chances, right, 1 - right)


def compared(generator, seeds, rows, skills, metric="accuracy"):
    hardness = generator.normal(0.0, 1.0, rows)
    sums = [
        [row_sums(right, given, True) for given in answers]
        for right, answers in (drawn(generator, skill, seeds, rows, hardness) for skill in skills)
    ]
    scores = [[float(scored_sums(one.sum(axis=0)[None], rows, metric)[0]) for one in side] for side in sums]
    return score_difference(*scores, [(bootstrap_error(*sums, [metric]), rows)])


@pytest.fixture
def fewer_resamples(monkeypatch):
    """A fifth of the draws of rows, which hardly changes an error."""
    significance._resamples.cache_clear()
    monkeypatch.setattr(significance, "_RESAMPLES", 200)
    yield
    significance._resamples.cache_clear()


@pytest.mark.usefixtures("fewer_resamples")
@pytest.mark.parametrize("seeds, rows, metric", [(3, 200, "accuracy"), (2, 80, "f1"), (5, 100, "matthews")])
@pytest.mark.long
def test_equal_recipes_are_called_different_in_at_most_5_percent_of_draws(seeds, rows, metric):
    generator, draws = np.random.default_rng(1), 600
    called = sum(compared(generator, seeds, rows, (1.0, 1.0), metric).is_significant for _ in range(draws))
    assert called <= LEVEL * draws


def test_without_rows_it_is_the_paired_t_test():
    generator = np.random.default_rng(2)
    false, found, draws = 0, 0, 1000
    for _ in range(draws):
        ours, theirs = generator.normal(0.5, 0.02, (2, 3)).tolist()
        assert score_difference(ours, theirs).p == pytest.approx(ttest_rel(ours, theirs).pvalue)
        false += score_difference(ours, theirs).is_significant
        found += score_difference([each + 0.3 for each in ours], theirs).is_significant
    assert false <= 1.3 * LEVEL * draws and found == draws  # 50 are expected, with a deviation of 7


def test_an_average_of_few_and_of_many_rows_calls_few_equal_models_different():
    generator, false, draws = np.random.default_rng(7), 0, 1000
    for _ in range(draws):
        few, many = generator.normal(0, 0.1, 3), generator.normal(0, 0.1, 1000)
        of_rows = [(float(np.std(each, ddof=1)) / len(each) ** 0.5 / 2, len(each)) for each in (few, many)]
        false += score_difference([float(few.mean() + many.mean()) / 2], [0.0], of_rows).is_significant
    assert false <= LEVEL * draws  # with the number of all rows for both they are 208


def test_a_real_difference_is_found():
    generator = np.random.default_rng(3)
    called = [compared(generator, 3, 800, (3.0, 0.5)) for _ in range(20)]
    assert all(each.is_significant and each.difference > 0 for each in called)


def test_several_comparisons_are_adjusted_as_holm_does():
    assert adjusted([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])  # Holm 1979, in the order given
    assert adjusted([0.6, 0.7]) == [1.0, 1.0] and adjusted([]) == []


def test_the_best_of_many_equal_models_is_seldom_called_better_than_another():
    """The best was chosen by the same scores, so each pair of models counts as a comparison."""
    generator, models, false = np.random.default_rng(0), 10, 0
    for _ in range(200):
        scores = generator.normal(0.5, 0.01, (models, 5))
        best = int(scores.mean(axis=1).argmax())
        p = [score_difference(scores[best], other).p for number, other in enumerate(scores) if number != best]
        false += min(adjusted(p, models * (models - 1) // 2)) < LEVEL
    assert false / 200 <= 0.05


def test_where_nothing_shows_chance_no_difference_counts():
    assert score_difference([0.9], [0.1]).p == 1.0
    assert score_difference([0.3, 0.5], [0.1, 0.3]).obstacle  # the errors differ in their last bits alone
    assert not score_difference([0.3, 0.5], [0.3, 0.5]).obstacle
    assert score_difference([0.5, 0.5], [0.4, 0.4]).p == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_from_sums_are_those_of_scikit_learn(classes):
    generator = np.random.default_rng(classes)
    right, given = generator.integers(classes, size=(2, 90))
    (total,) = row_sums(right, given, True).sum(axis=0)[None, None]
    expected = {
        "accuracy": metrics.accuracy_score(right, given),
        "f1": metrics.f1_score(right, given, average="binary" if classes == 2 else "macro"),
        "macro_f1": metrics.f1_score(right, given, average="macro"),
        "matthews": metrics.matthews_corrcoef(right, given),
    }
    for name, value in expected.items():
        assert scored_sums(total, 90, name) == pytest.approx(value)
    assert scored_sums(row_sums(np.array([0, 1]), np.array([0, 0]), True).sum(axis=0)[None], 2, "matthews") == 0.0


def test_tags_are_compared_by_their_sentences():
    """Each sentence has true, predicted and right words; the metric is over words, and sentences are drawn."""
    rng = np.random.default_rng(1)
    words = rng.integers(5, 30, 400)
    right, worse = rng.binomial(words, 0.93), rng.binomial(words, 0.90)
    one, two = (np.stack([words, words, each], axis=1).astype(float) for each in (right, worse))
    assert scored_sums(one.sum(axis=0, keepdims=True), 400, "accuracy")[0] == pytest.approx(right.sum() / words.sum())
    error = bootstrap_error([one], [two], ["accuracy"])
    expected = np.std((right - worse) - (right.sum() - worse.sum()) / words.sum() * words) * 400**0.5 / words.sum()
    assert error == pytest.approx(expected, rel=0.1)
    gain = (right.sum() - worse.sum()) / words.sum()
    assert score_difference([gain], [0.0], [(error, 400)]).is_significant


def test_rows_are_not_compared_by_a_metric_that_their_answers_do_not_give():
    answers = {"golds": [0, 1, 1], "predicted": [0, 1, 0], "accuracy": 2 / 3, "log_loss": 0.4}
    task = FineTuning(name="x", config=load_config("sst2", FinetuneConfig))
    (counted,) = task.outcomes([answers | {"metric": "accuracy"}]).sums
    assert len(counted) == 3 and task.outcomes([answers | {"metric": "log_loss"}]).sums == ()


def test_correlations_from_sums_are_those_of_scipy():
    from scipy.stats import pearsonr, spearmanr

    generator = np.random.default_rng(5)
    right = generator.integers(6, size=70)  # with ties
    given = right + generator.normal(0, 2, 70)
    total = row_sums(right, given, False).sum(axis=0)[None]
    assert scored_sums(total, 70, "pearson") == pytest.approx(pearsonr(right, given).statistic)
    assert scored_sums(total, 70, "spearman") == pytest.approx(spearmanr(right, given).statistic)


def test_what_is_said():
    assert difference_text("a", "b", Difference(0.1, 0.02, 0.001, 3, 100)) == (
        "a is better than b (+0.100 ± 0.020, p 0.001, 3 seeds, 100 rows)"
    )
    assert "3 seeds, 2 files" in difference_text("a", "b", Difference(0.1, 0.02, 0.001, 3, 2), "files")
    not_better = "a and b are not distinguishable (-0.010 ± 0.020"
    assert not_better in difference_text("a", "b", Difference(-0.01, 0.02, 0.6, 3, 0))
    assert difference_text("a", "b", score_difference([0.5], [0.4])) == (
        "a scores +0.100 beside b; no verdict, as neither seeds nor rows show how much scores vary by chance (1 seed)"
    )


def compared_pairs(generator, files, pairs, skill=0.0):
    """Two models on files of pairs that are hard or easy for both; the first one has the more skill."""
    hardness = generator.normal(0, 1, (files, 1)) + generator.normal(0, 1, (files, pairs))
    ours, theirs = (generator.random((files, pairs)) < 1 / (1 + np.exp(-each - hardness)) for each in (skill, 0.0))
    differences = ours.astype(float) - theirs
    errors = pair_errors(differences.ravel(), np.repeat(np.arange(files), pairs))
    return score_difference([float(differences.mean())], [0.0], errors)


@pytest.mark.parametrize("files, pairs", [(1, 20), (3, 150), (67, 1), (67, 20)])
def test_equal_models_are_seldom_called_different_on_minimal_pairs(files, pairs):
    generator, draws = np.random.default_rng(8), 600
    called = sum(compared_pairs(generator, files, pairs).is_significant for _ in range(draws))
    assert called <= 1.4 * LEVEL * draws  # 30 are expected at most, with a deviation of 5


def test_a_difference_on_one_file_or_a_few_is_found():
    generator = np.random.default_rng(9)
    for files in (1, 3):
        found = [compared_pairs(generator, files, 150, skill=2.0) for _ in range(20)]
        assert all(each.is_significant and each.rows == 150 * files for each in found)
    right, file = np.ones(150), np.zeros(150, int)
    assert score_difference([1.0], [0.0], pair_errors(right, file)).is_significant  # all right against all wrong
    assert not score_difference([1.0], [0.0], pair_errors(right[:2], file[:2])).is_significant
    assert score_difference([0.0], [0.0], pair_errors(0 * right, file)).p == 1.0


def test_the_error_of_pairs_is_that_of_a_mean_over_strata():
    generator = np.random.default_rng(10)
    sizes, differences = (400, 900), [generator.choice([-1.0, 0.0, 0.5, 1.0], size) for size in (400, 900)]
    found = pair_errors(np.concatenate(differences), np.repeat([0, 1], sizes))
    expected = [each.std(ddof=1) / np.sqrt(len(each)) / 2 for each in differences]
    assert [error for error, _ in found] == pytest.approx(expected, rel=0.01) and [n for _, n in found] == [*sizes]
