"""The estimator: scikit-learn's own checks, and the weights of a run with the same settings."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import messi
from messi.cli.main import main
from messi.core.tensorfile import read_tensors, write_tensors
from messi.engine.in_memory import train_in_memory
from messi.engine.metrics_log import NonFiniteLossError

QUICK: dict[str, Any] = {"steps": 20, "learning_rate": 1e-2, "device": "cpu"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [messi.DomainClassifier("erm", **QUICK), messi.DomainClassifier(**QUICK)]
)
def test_it_passes_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def data() -> tuple[Any, Any, Any]:
    """Return 240 rows of 3 classes in 3 domains whose features are shifted."""
    x, y = make_classification(240, 8, n_informative=6, n_classes=3, class_sep=2.0, random_state=0)
    domains = np.array(["north", "south", "west"])[np.arange(240) % 3]
    return (x + (domains == "west")[:, None]).astype("float32"), y, domains


@pytest.mark.parametrize(
    ("algorithm", "backbone", "averaging"),
    [("messi", None, "none"), ("erm", "identity", "none"), ("coral", None, "ema"), ("messi", None, "ma")],
)
def test_its_weights_are_those_of_a_run_to_the_bit(
    algorithm: str, backbone: str | None, averaging: Any, data: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    x, y, domains = data
    np.savez(tmp_path / "data.npz", inputs=x, labels=y, domains=domains)
    estimator = messi.DomainClassifier(
        algorithm,
        backbone=backbone,
        averaging=averaging,
        steps=24,
        evaluate_every=3,
        learning_rate=0.03,
        batch_per_domain=8,
        random_state=5,
        device="cpu",
    ).fit(x, y, domains=domains)
    trained = estimator.model_.description
    config = messi.RunConfig(
        data=messi.Arrays(path=str(tmp_path / "data.npz")),
        algorithm=messi.RunConfig.from_dict({**trained.config, "data": {"name": "two_subsets"}}).algorithm,
        encoder=messi.EncoderConfig(backbone=backbone),
        training=messi.TrainingConfig(
            steps=24, evaluate_every=3, learning_rate=0.03, batch_per_domain=8, averaging=averaging
        ),
        seed=5,
    )
    result = messi.run(config, out=tmp_path / "run", device="cpu")
    model = messi.load(result.path)
    assert (trained.step, trained.averaged_steps) == (model.description.step, model.description.averaged_steps)
    assert averaging != "none" or trained.step < 24  # an earlier step than the last was selected
    assert estimator.model_.spec == model.spec
    ours, theirs = estimator.model_.algorithm.state_dict(), model.algorithm.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (trained.initial, trained.sources) == (model.description.initial, model.description.sources)


def test_a_seed_decides_the_result_and_the_callers_random_state_is_kept(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data

    def fitted(seed: Any) -> Any:
        return messi.DomainClassifier(**QUICK, random_state=seed).fit(x, y, domains=domains).predict_proba(x)

    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = fitted(1)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.are_deterministic_algorithms_enabled()
    np.testing.assert_array_equal(first, fitted(1))
    np.testing.assert_array_equal(first, fitted(np.int64(1)))
    assert not np.array_equal(first, fitted(2))
    np.testing.assert_array_equal(fitted(np.random.RandomState(3)), fitted(np.random.RandomState(3)))
    assert not np.array_equal(fitted(None), fitted(None))


def test_nothing_is_written(data: tuple[Any, Any, Any], tmp_path: Path) -> None:
    x, y, domains = data
    messi.DomainClassifier(**QUICK, averaging="ema").fit(x, y, domains=domains).score(x, y)
    assert list(tmp_path.iterdir()) == []  # the working folder, in which MESSI_HOME would be


def test_linear_erm_is_logistic_regression() -> None:
    x, y = make_classification(1200, 12, n_informative=6, n_classes=3, class_sep=0.8, random_state=1)
    x = x * np.geomspace(1e-3, 1e3, 12) + 50  # of different scales
    ours = messi.DomainClassifier("erm", backbone="identity", steps=600, learning_rate=1e-2, random_state=0)
    ours.set_params(batch_per_domain=256, weight_decay=0.0, evaluate_every=600).fit(x[:800], y[:800])
    other = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf)).fit(x[:800], y[:800])
    np.testing.assert_allclose(ours.score(x[800:], y[800:]), other.score(x[800:], y[800:]), atol=0.03)
    assert np.abs(ours.predict_proba(x[800:]) - other.predict_proba(x[800:])).mean() < 0.03


def test_the_default_is_the_recipe_for_features(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data
    expected = messi.recipe(data=messi.Arrays(path="features.npz"))
    estimator = messi.DomainClassifier(**QUICK, random_state=0)
    for one in (estimator, messi.DomainClassifier("messi_swad", **QUICK), clone(estimator)):
        trained = one.fit(x, y, domains=domains).model_.description.config
        assert trained["algorithm"] == expected.algorithm.to_dict()
        assert trained["training"]["averaging"] == expected.training.averaging == "swad"
        assert trained["training"]["domains_per_batch"] == 8, "not hundreds, if every patient is a domain"
    changed = clone(estimator).set_params(algorithm__ssi_weight=0.5)
    assert changed.algorithm == dataclasses.replace(expected.algorithm, ssi_weight=0.5)  # type: ignore[call-arg]
    assert clone(changed).averaging == "swad"
    plain = messi.DomainClassifier("messi", **QUICK).fit(x, y, domains=domains).model_.description.config
    assert (plain["algorithm"], plain["training"]["averaging"]) == (messi.MESSI.Config().to_dict(), "none")


def test_settings_of_the_method_are_parameters(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data
    estimator = messi.DomainClassifier("messi", **QUICK, random_state=0)
    assert estimator.get_params()["algorithm__ssi_weight"] == messi.MESSI.Config().ssi_weight
    estimator.set_params(algorithm__num_experts=np.int64(3), algorithm__ssi_weight=0.5)
    assert estimator.algorithm == messi.MESSI.Config(num_experts=3, ssi_weight=0.5)
    assert estimator.averaging == "none"
    assert clone(estimator).fit(x, y, domains=domains).routing(x).shape == (240, 3)
    np.testing.assert_allclose(clone(estimator).fit(x, y, domains=domains).routing(x).sum(1), 1, rtol=1e-5)
    estimator.set_params(algorithm="coral", algorithm__gamma=2.0)
    assert (estimator.algorithm.name, estimator.get_params()["algorithm__gamma"]) == ("coral", 2.0)
    with pytest.raises(ValueError, match="Invalid parameter 'algorithm__ssi_weight'"):
        estimator.set_params(algorithm__ssi_weight=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'rate'"):
        estimator.set_params(rate=1.0)
    with pytest.raises(messi.MessiError, match="'erm' has no router"):
        messi.DomainClassifier("erm", **QUICK).fit(x, y).routing(x)
    with pytest.raises(NotFittedError):
        messi.DomainClassifier().routing(x)


def test_grid_search_over_held_out_domains(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data
    grid = {"algorithm__ssi_weight": np.array([0.0, 0.1]), "steps": np.array([1, 40])}
    with config_context(enable_metadata_routing=True):
        estimator = messi.DomainClassifier(**QUICK, random_state=0).set_fit_request(domains=True)
        search = GridSearchCV(estimator, grid, cv=LeaveOneGroupOut(), error_score="raise")
        search.fit(x, y, domains=domains, groups=domains)
        assert search.best_params_["steps"] == 40
        assert list(search.best_estimator_.domains_) == ["north", "south", "west"]
        pipeline = make_pipeline(StandardScaler(), estimator)
        parameters = {"domains": domains, "groups": domains}
        scores = cross_val_score(pipeline, x, y, cv=LeaveOneGroupOut(), params=parameters, error_score="raise")
    assert len(scores) == 3
    assert scores.min() > 0.5
    plain = messi.DomainClassifier(**QUICK)  # without routing, every keyword goes to fit
    assert len(cross_val_score(plain, x, y, groups=domains, cv=LeaveOneGroupOut(), params={"domains": domains})) == 3


def test_domains_reach_the_method(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data
    estimators = [messi.DomainClassifier("vrex", **QUICK, random_state=0) for _ in range(2)]
    with_domains, without = estimators[0].fit(x, y, domains=domains), estimators[1].fit(x, y)
    assert list(with_domains.domains_) == ["north", "south", "west"]
    assert list(without.domains_) == ["all"]
    assert not np.array_equal(with_domains.predict_proba(x), without.predict_proba(x))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimators[0].fit(x, y, domains=domains[:-1])
    missing = domains.astype(object)
    missing[4] = None
    with pytest.raises(ValueError, match="domains must not be missing, but that of row 4"):
        estimators[0].fit(x, y, domains=missing)


def test_a_domain_with_one_example_is_trained_on_and_validated_on() -> None:
    x, y = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([0, 0, 1, 1])
    estimator = messi.DomainClassifier("erm", steps=60, learning_rate=0.1, random_state=0)
    assert estimator.fit(x, y, domains=["a", "b", "c", "d"]).score(x, y) == 1
    assert messi.DomainClassifier("messi", **QUICK).fit(x[:1], y[:1]).predict(x).tolist() == [0, 0, 0, 0]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Return a table in which the class follows a category, and numbers with missing values."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 200)
    age = random.normal(50, 10, 200)
    age[::9] = np.nan
    colour = pd.Series(np.where(y == 1, "red", "blue")).where(random.random(200) < 0.9, None)
    return pd.DataFrame(
        {
            "age": age,
            "colour": colour,
            "ward": pd.Categorical(random.integers(1, 5, 200)),
            "smoker": random.random(200) < 0.5,
            "site": np.array(["a", "b"])[np.arange(200) % 2],
            "ill": np.where(y == 1, "yes", "no"),
        }
    )


def test_a_data_frame_with_categories_and_missing_values(frame: pd.DataFrame, tmp_path: Path) -> None:
    x, y, domains = frame.drop(columns=["site", "ill"]), frame["ill"], frame["site"]
    estimator = messi.DomainClassifier("erm", steps=80, learning_rate=1e-2, random_state=0)
    estimator.fit(x, y, domains=domains)
    assert list(estimator.feature_names_in_) == ["age", "colour", "ward", "smoker"]
    assert (estimator.n_features_in_, list(estimator.classes_)) == (4, ["no", "yes"])
    columns = {column.name: column for column in estimator.model_.spec.columns}
    assert columns["ward"].categories == ("1", "2", "3", "4")  # numbers of pandas' type for categories
    assert (columns["colour"].categories, columns["colour"].indicator) == (("blue", "red"), True)
    assert (columns["age"].categories, columns["age"].indicator) == (None, True)
    assert estimator.score(x, y) > 0.85
    before = estimator.predict_proba(x)
    np.testing.assert_array_equal(before, estimator.predict_proba(x[x.columns[::-1]]))
    np.testing.assert_array_equal(before, estimator.predict_proba(x.assign(name="other")))
    np.testing.assert_array_equal(before, estimator.predict_proba(x.set_index(domains)))
    np.testing.assert_array_equal(before, estimator.predict_proba(x.rename(columns={"age": " age", "ward": "ward "})))
    unseen = estimator.predict_proba(x.assign(colour="green"))
    np.testing.assert_array_equal(unseen, estimator.predict_proba(x.assign(colour="violet")))
    with pytest.raises(messi.MessiError, match="The feature 'age' is missing in the data frame"):
        estimator.predict(x.drop(columns="age"))
    for name in ("age", "age "):
        with pytest.raises(messi.MessiError, match="The data frame has several columns named 'age'; rename all but"):
            estimator.predict(pd.concat([x, x[["age"]].rename(columns={"age": name})], axis=1))
    with pytest.raises(messi.MessiError, match="'old' in row 3 of the data frame, counted from 0, column 'age'"):
        estimator.predict(x.assign(age=x["age"].astype(object).where(x.index != 3, "old")))
    with pytest.raises(messi.MessiError, match=r"would be a feature; correct it, convert .* or leave it out\.$"):
        estimator.fit(x.assign(name=[f"patient {number}" for number in range(200)]), y)
    with pytest.raises(ValueError, match="'age' 2 times"):
        estimator.fit(pd.concat([x, x[["age"]]], axis=1), y)
    with pytest.raises(ValueError, match="X has no rows"):
        estimator.fit(x[:0], y[:0])
    estimator.fit(x, y, domains=domains).save(tmp_path / "model.safetensors")
    loaded = messi.DomainClassifier.load(tmp_path / "model.safetensors")
    assert list(loaded.feature_names_in_) == list(estimator.feature_names_in_)
    np.testing.assert_array_equal(before, loaded.predict_proba(x[x.columns[::-1]]))
    x.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.csv")]) == 0


def test_ranges_of_numbers_are_categories(frame: pd.DataFrame, tmp_path: Path) -> None:
    x = frame[["age", "colour"]].assign(age=pd.cut(frame["age"], [0, 40, 60, 100]))
    estimator = messi.DomainClassifier("erm", **QUICK).fit(x, frame["ill"])
    assert estimator.model_.spec.columns[0].categories == ("(0, 40]", "(40, 60]", "(60, 100]")
    for day in (pd.Timestamp("2026-01-01"), pd.Categorical([pd.Timestamp("2026-01-01")] * 200)):
        with pytest.raises(messi.MessiError, match="has dates or times; correct it, convert dates to numbers and"):
            clone(estimator).fit(x.assign(day=day), frame["ill"])
    estimator.save(tmp_path / "model.safetensors")
    loaded = messi.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(x).probabilities, estimator.predict_proba(x))
    known = x[x["age"].notna()]
    np.testing.assert_array_equal(estimator.predict_proba(known), estimator.predict_proba(x)[x["age"].notna()])


def test_a_data_frame_of_numbers_is_like_an_array(data: tuple[Any, Any, Any]) -> None:
    x, y, domains = data
    frame = pd.DataFrame(x, columns=list("abcdefgh"))
    estimator = messi.DomainClassifier(**QUICK, random_state=0)
    with_names = clone(estimator).fit(frame, pd.Series(y), domains=pd.Series(domains))
    without = estimator.fit(x, y, domains=domains)
    np.testing.assert_array_equal(with_names.predict_proba(frame), without.predict_proba(x))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(with_names.predict_proba(x), without.predict_proba(x))
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        np.testing.assert_array_equal(without.predict_proba(frame), without.predict_proba(x))
    numbered = clone(estimator).fit(pd.DataFrame(x), y, domains=domains)  # such names are ignored
    assert not hasattr(numbered, "feature_names_in_")


def test_numbers_are_scaled_by_the_training_part_only(data: tuple[Any, Any, Any]) -> None:
    """Large numbers are standardised before they become float32, in which these would all be the same."""
    x, y, domains = data
    estimator = messi.DomainClassifier("erm", **QUICK, random_state=0).fit(x, y, domains=domains)
    moved = messi.DomainClassifier("erm", **QUICK, random_state=0).fit(1e9 + 1e-2 * x.astype(float), y, domains=domains)
    np.testing.assert_allclose(estimator.predict_proba(x), moved.predict_proba(1e9 + 1e-2 * x.astype(float)), atol=1e-3)


@pytest.mark.parametrize("kind", ["int64", "bool", "float64", "str", "object"])
def test_a_saved_model_is_the_same_in_python_and_on_the_command_line(
    kind: str, data: tuple[Any, Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y, domains = data
    y = np.array(["low", "mid", "high"])[y].astype(kind) if kind in ("str", "object") else y.astype(kind)
    x[::7, 2] = np.nan
    estimator = messi.DomainClassifier(**QUICK, random_state=4, averaging="ma").fit(x, y, domains=domains)
    estimator.save(tmp_path / "model.safetensors")
    loaded = messi.DomainClassifier.load(tmp_path / "model.safetensors")
    assert loaded.classes_.dtype == estimator.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(x), estimator.predict(x))
    np.testing.assert_array_equal(loaded.predict_proba(x), estimator.predict_proba(x))
    np.testing.assert_array_equal(loaded.routing(x), estimator.routing(x))
    assert (loaded.n_features_in_, loaded.n_iter_) == (estimator.n_features_in_, estimator.n_iter_)
    again = clone(loaded).fit(x, y, domains=domains)  # its parameters are those of the training
    np.testing.assert_array_equal(again.predict_proba(x), estimator.predict_proba(x))
    answers = messi.load(tmp_path / "model.safetensors").predict(torch.from_numpy(x))
    assert answers.labels == [str(label) for label in estimator.predict(x)]
    np.savez(tmp_path / "new.npz", inputs=x[:3])
    assert main(["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.npz")]) == 0
    assert answers.labels[0] in capsys.readouterr().out


def test_a_model_of_a_run_is_loaded_and_one_of_images_is_refused(
    data: tuple[Any, Any, Any], tmp_path: Path, quick_config: messi.RunConfig
) -> None:
    result = messi.run(quick_config, out=tmp_path / "run", device="cpu")
    loaded = messi.DomainClassifier.load(result.path)
    x: Any = quick_config.data.load().inputs
    x = x[:5]
    assert list(loaded.predict(x)) == messi.load(result.path).predict(x).labels
    assert (loaded.steps, loaded.random_state, list(loaded.domains_)) == (12, 0, ["a1", "a2", "b1"])
    np.savez(tmp_path / "images.npz", inputs=np.zeros((8, 8, 8, 3), np.uint8), labels=[0, 1] * 4, domains=[0] * 8)
    config = messi.RunConfig(
        data=messi.Arrays(path=str(tmp_path / "images.npz")),
        encoder=messi.EncoderConfig(backbone="tiny_cnn"),
        training=messi.TrainingConfig(steps=1, batch_per_domain=2),
    )
    images = train_in_memory(config, config.data.load(), device="cpu")
    estimator = messi.DomainClassifier("erm", **QUICK).fit(*data)
    estimator.model_ = images
    estimator.save(tmp_path / "images.safetensors")
    with pytest.raises(messi.MessiError, match="takes images, but a DomainClassifier takes features"):
        messi.DomainClassifier.load(tmp_path / "images.safetensors")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"values": [0, 1, 3], "type": "int64"}, "not those of its model"),
        ({"values": [0, 1], "type": "int64"}, "not those of its model"),
        ({"values": ["x", 1, 2], "type": "int64"}, "not of the type int64"),
        ({"values": [0, 1, 2], "type": "U999999999"}, "type must be one of"),
        ([0, 1, 2], "must be names with values"),
    ],
)
def test_a_forged_label_is_refused(labels: Any, message: str, data: tuple[Any, Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    messi.DomainClassifier("erm", **QUICK).fit(*data).save(path)
    tensors, description = read_tensors(path)
    description["config"]["data"]["classes"] = labels
    write_tensors(path, tensors, description)
    with pytest.raises(messi.MessiError, match=message):
        messi.DomainClassifier.load(path)


def test_bad_parameters_and_inputs_are_one_sentence(data: tuple[Any, Any, Any]) -> None:
    x, y, _ = data
    bad: list[tuple[dict[str, Any], str]] = [
        ({"algorithm": "mesi"}, "There is no algorithm named 'mesi'.*Did you mean 'messi'"),
        ({"algorithm": 3}, "algorithm must be the name or the config of a method, but is 3"),
        ({"steps": 0}, "steps must be at least 1, but is 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, but is 'fast'"),
        ({"averaging": "swa"}, "averaging must be one of"),
        ({"backbone": "mpl"}, "There is no backbone named 'mpl'"),
        ({"device": "gpu"}, "There is no device 'gpu'"),
    ]
    for parameters, message in bad:
        with pytest.raises(messi.MessiError, match=message):
            messi.DomainClassifier(**parameters).fit(x, y)
    with pytest.raises(ValueError, match=r"takes a table of features.*messi\.run"):
        messi.DomainClassifier().fit(np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1])
    for domains, problem in (
        (np.array(["a", 1, "b"], object), "domains must all be numbers or all be text, but are of the types int, str"),
        (np.zeros((3, 2)), r"domains must have the shape \[3\], one per row of X, but has \[3, 2\]"),
    ):
        with pytest.raises(ValueError, match=problem):
            messi.DomainClassifier().fit([[1.0], [2.0], [3.0]], [0, 1, 0], domains=domains)
    for mixed, problem in (
        (np.array(["a", 1], object), "classes must all be numbers or all be text, but are of the types int, str"),
        (np.array(["a", None], object), "classes must not be missing, but that of row 1, counted from 0, is"),
    ):
        with pytest.raises(ValueError, match=problem):
            messi.DomainClassifier().fit([[1.0], [2.0]], mixed)
    with pytest.raises(ValueError, match="infinity"):
        messi.DomainClassifier().fit([[np.inf], [0.0]], [0, 1])
    for many in (x.astype(float) * 1e200, pd.DataFrame(x.astype(float) * 1e200, columns=list("abcdefgh"))):
        with pytest.raises(messi.MessiError, match=r"too large"):
            messi.DomainClassifier().fit(many, y)
        with pytest.raises(messi.MessiError, match=r"too large"):
            messi.DomainClassifier("erm", **QUICK).fit(many * 1e-200, y).predict(many)
    with pytest.raises(NonFiniteLossError, match=r"at step [0-9]+\. A lower learning rate"):
        messi.DomainClassifier("erm", steps=50, learning_rate=1e30).fit(x, y)


def test_its_parameters_are_settings_of_a_run() -> None:
    """The names in the signature are those of ``messi train``, and None stands for its defaults."""
    settings = set(inspect.signature(messi.TrainingConfig).parameters)
    own = {"algorithm", "backbone", "device", "random_state"}
    parameters = inspect.signature(messi.DomainClassifier).parameters
    assert parameters.keys() - own <= settings
    defaults = messi.TrainingConfig()
    settings = parameters.keys() - own - {"averaging"}  # its default is that of the recipe
    assert all(parameters[name].default == getattr(defaults, name) for name in settings)
