"""A scikit-learn classifier for features from several domains; it trains in memory, with the steps of a run."""

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from messi.algorithms.common.base import ALGORITHMS, AlgorithmConfig
from messi.core.errors import MessiError
from messi.core.registry import short_name
from messi.data.cells import read_rows
from messi.data.datasets.common.given import GivenData, Labels
from messi.data.examples import Examples, digest, require_not_infinite
from messi.data.features import Rows
from messi.data.frames import FRAME, from_frame, read_frame
from messi.engine.config import RunConfig, TrainingConfig
from messi.engine.in_memory import train_in_memory
from messi.engine.recipes import Recipe, recipe_for_method
from messi.evaluation.model import Answers, load, save_model
from messi.models.encoder import EncoderConfig

_TRAINING = (
    *("steps", "evaluate_every", "learning_rate", "weight_decay"),
    *("batch_per_domain", "domains_per_batch", "validation_fraction"),
)
"""The parameters that are settings of training, besides the averaging."""
_NESTED = "algorithm__"
"""The prefix of the method's own settings."""


class DomainClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify features from domains that were not seen in training.

    Give ``fit`` the domain of every example. A parameter that is None has the default of ``messi train`` for features.
    Settings of the method are parameters, too: ``set_params(algorithm__ssi_weight=0.1)``, also in a grid search.

    Args:
        algorithm: the name of a recipe or a method, or a config, such as ``messi.MESSI.Config(num_experts=4)``.
        backbone: the network, such as "mlp", or "identity" for none; with "erm", the latter is logistic regression.
        steps: number of training steps.
        evaluate_every: steps between evaluations on the validation data; the best evaluated step is kept.
        learning_rate: learning rate of Adam.
        weight_decay: weight decay of Adam.
        batch_per_domain: number of examples per domain in a batch.
        domains_per_batch: number of domains in a batch, at most; by default 8, drawn again at every step.
        validation_fraction: fraction of every domain that is set aside for validation. A domain in which that is not
            even one example is trained on and validated on as a whole.
        averaging: "none", or how weights are averaged: "ma", "ema" or "swad"; by default as the recipe states, and not
            at all for a method.
        device: such as "cpu" or "cuda"; by default a GPU if there is one.
        random_state: seed of the split, the weights and the batches; with the same number, the result is the same.

    Attributes:
        classes_: the classes.
        domains_: the domains of the training data.
        n_features_in_: number of columns.
        feature_names_in_: their names, if the data had names.
        n_iter_: the selected step, or the last of the averaged ones.
        model_: the trained :class:`messi.Model`.

    """

    def __init__(  # noqa: PLR0913 (scikit-learn's parameters are flat)
        self,
        algorithm: str | AlgorithmConfig = "messi_swad",
        *,
        backbone: str | None = None,
        steps: int | None = None,
        evaluate_every: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_per_domain: int | None = None,
        domains_per_batch: int | None = None,
        validation_fraction: float | None = None,
        averaging: str | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.backbone = backbone
        self.steps = steps
        self.evaluate_every = evaluate_every
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_per_domain = batch_per_domain
        self.domains_per_batch = domains_per_batch
        self.validation_fraction = validation_fraction
        self.averaging = averaging
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, domains: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Train on rows X [N, columns] of classes y [N] and domains [N]; without ``domains``, all are of one domain."""
        y = validate_data(self, y=y)  # before X: it forgets the names of features
        self.classes_, labels = _distinct(y, "classes")
        check_classification_targets(y)
        rows = self._rows(X, reset=True)
        check_consistent_length(rows, y, domains)
        self.domains_, groups = _distinct(_domains_of(domains, len(y)), "domains")
        indices = torch.from_numpy(labels), torch.from_numpy(groups)
        examples = Examples(
            rows.values,
            *indices,
            classes=tuple(map(str, self.classes_)),
            domain_names=tuple(map(str, self.domains_)),
            fingerprint=digest(rows.values, *indices),
            columns=rows.columns,
            scaling="standardise",
        )
        self.model_ = train_in_memory(self._config(), examples, device=self.device)
        self.n_iter_ = self.model_.description.step
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class of each row [N]."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the probabilities [N, classes] in the order of ``classes_``."""
        return self._answers(X).probabilities.numpy()

    def routing(self, X: Any) -> Any:  # noqa: N803
        """Return the router's weights [N, experts]."""
        experts = self._answers(X).experts
        if experts is None:
            name = short_name(self._algorithm_config().name)
            raise MessiError(f"The method '{name}' has no router; choose one that has, such as algorithm='messi'.")
        return experts.numpy()

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, which ``messi.load`` and ``messi predict`` read, too."""
        check_is_fitted(self)
        weights = {name: tensor.cpu() for name, tensor in self.model_.algorithm.state_dict().items()}
        save_model(Path(path), weights, self.model_.description)

    @classmethod
    def load(
        cls, path: str | Path, *, device: str | None = None, algorithm: str | Path | None = None
    ) -> "DomainClassifier":
        """Read a saved model, or the model of a run on features; its parameters are those that it was trained with.

        Args:
            path: the file, or the folder of a run.
            device: the device of the model, by default the CPU.
            algorithm: the file with the method if it is the user's own.

        """
        model = load(path, device=device or "cpu", algorithm=algorithm)
        if len(model.spec.shape) != 1:
            raise MessiError(f"{path} takes images, but a DomainClassifier takes features; use messi.load.")
        config, files = model.description.config, () if algorithm is None else (algorithm,)
        estimator = cls(
            AlgorithmConfig.from_dict(config["algorithm"], files=files),
            backbone=config["encoder"]["backbone"],
            **{name: config["training"][name] for name in (*_TRAINING, "averaging")},
            device=device,
            random_state=config["seed"],
        )
        data = config["data"]
        estimator.classes_ = Labels.read(data.get("classes"), model.classes)
        estimator.domains_ = Labels.read(data.get("domains"), model.description.sources)
        names = [column.name for column in model.spec.columns]
        estimator.n_features_in_ = len(names) or model.spec.shape[0]
        if names != [str(place) for place in range(len(names))]:  # the names of columns that had none
            estimator.feature_names_in_ = np.array(names, object)
        estimator.n_iter_ = model.description.step
        estimator.model_ = model
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters; ``deep`` includes the settings of the method."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if deep:
            with suppress(MessiError):  # an unknown method is reported by fit
                config = self._algorithm_config()
                parameters |= {_NESTED + one.name: getattr(config, one.name) for one in dataclasses.fields(config)}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters; one that begins with ``algorithm__`` is a setting of the method."""
        super().set_params(**{name: value for name, value in parameters.items() if not name.startswith(_NESTED)})
        nested = {name: value for name, value in parameters.items() if name.startswith(_NESTED)}
        if nested:
            config = self._algorithm_config()
            known = [_NESTED + one.name for one in dataclasses.fields(config)]
            for name in nested:
                if name not in known:
                    raise ValueError(f"Invalid parameter {name!r}; the settings of the method are: {', '.join(known)}.")
            changes = {name.removeprefix(_NESTED): _plain(value) for name, value in nested.items()}
            self.averaging = self._averaging()  # a config does not know the recipe that it comes from
            self.algorithm = dataclasses.replace(config, **changes)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _algorithm_config(self) -> AlgorithmConfig:
        if isinstance(self.algorithm, AlgorithmConfig):
            return self.algorithm
        if not isinstance(self.algorithm, str):
            raise MessiError(f"algorithm must be the name or the config of a method, but is {self.algorithm!r}.")
        if recipe := self._recipe():
            return recipe.algorithm
        config: AlgorithmConfig = ALGORITHMS.config(self.algorithm)()
        return config

    def _recipe(self) -> Recipe | None:
        return recipe_for_method(self.algorithm) if isinstance(self.algorithm, str) else None

    def _averaging(self) -> Any:
        if self.averaging is not None:
            return self.averaging
        recipe = self._recipe()
        return recipe.training.averaging if recipe else "none"

    def _config(self) -> RunConfig:
        seed = self.random_state
        if seed is None or isinstance(seed, np.random.RandomState):
            seed = check_random_state(seed).randint(2**31)
        return RunConfig(
            data=GivenData(
                classes=Labels.of(self.classes_),
                domains=Labels.of(self.domains_),
            ),
            algorithm=self._algorithm_config(),
            encoder=EncoderConfig(backbone=self.backbone),
            training=TrainingConfig(
                **{name: _plain(getattr(self, name)) for name in _TRAINING}, averaging=self._averaging()
            ),
            seed=_plain(seed),
        )

    def _rows(self, X: Any, *, reset: bool) -> Rows:  # noqa: N803
        """Return the rows for training (``reset``) or for prediction; those of a data frame are found by name."""
        if getattr(X, "ndim", 2) > 2:
            raise ValueError(
                f"DomainClassifier takes a table of features [N, columns], but X has the shape {list(X.shape)}; train "
                "on images with messi.run."
            )
        if reset and _has_names(X):
            validate_data(self, X, skip_check_array=True)
            return _frame_rows(X)
        if not reset and _has_names(X) and hasattr(self, "feature_names_in_"):
            return read_frame(X, self.model_.spec.columns)
        kinds = [np.float64, np.float32]
        values = validate_data(self, X, reset=reset, dtype=kinds, ensure_all_finite="allow-nan")
        # torch takes no arrays that are read-only or have reversed rows.
        features = torch.from_numpy(np.require(values, requirements=["C", "W"]))
        require_not_infinite(features, "X")
        return Rows(features, ())

    def _answers(self, X: Any) -> Answers:  # noqa: N803
        check_is_fitted(self)
        return self.model_.predict(self._rows(X, reset=False))


def _has_names(X: Any) -> bool:  # noqa: N803
    """Return whether X is a data frame whose columns have names; scikit-learn ignores other names than text."""
    return isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns)


def _frame_rows(frame: pd.DataFrame) -> Rows:
    """Return the rows of a data frame; text and values of pandas' type for categories are categories."""
    if not len(frame):
        raise ValueError("X has no rows; give at least one.")
    chosen = [str(name).strip() for name, kind in frame.dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
    try:
        return read_rows(from_frame(frame), FRAME, kinds=dict.fromkeys(chosen, "categories"), named=chosen)
    except MessiError as error:
        if not error.advice:
            raise
        # Options of the command line do not help here.
        advice = "correct it, convert dates to numbers and other values with .astype('category'), or leave it out."
        raise MessiError(error.problem, advice) from error


def _domains_of(domains: Any, number: int) -> Any:
    """Return the domain of each example; a single one, or none, stands for all examples."""
    named = "all" if domains is None else domains
    domains = np.full(number, named) if isinstance(named, str) else np.asarray(named)
    if domains.shape not in ((number,), (number, 1)):
        raise ValueError(f"domains must have the shape [{number}], one per row of X, but has {list(domains.shape)}.")
    return domains.ravel()


def _distinct(values: Any, name: str) -> tuple[Any, Any]:
    """Return the distinct values and the index of each example's."""
    if missing := np.flatnonzero(pd.isna(values)).tolist():
        raise ValueError(f"{name} must not be missing, but that of row {missing[0]}, counted from 0, is.")
    try:
        return np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(f"{name} must all be numbers or all be text, but are of the types {kinds}.") from error


def _plain(value: Any) -> Any:
    """Return a number of numpy, as a grid of parameters has them, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
