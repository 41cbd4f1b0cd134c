# ruff: noqa: I001 (grouped by use)
# The public names of messi, each listed once. __init__.py reads this file and imports each name when it is first used.

__all__: list[str]
__version__: str

# Train, load and predict.
from messi.api import average as average
from messi.api import run as run
from messi.core.errors import MessiError as MessiError
from messi.engine.config import RunConfig as RunConfig
from messi.engine.config import TrainingConfig as TrainingConfig
from messi.engine.recipes import recipe as recipe
from messi.engine.run import RunResult as RunResult
from messi.evaluation.model import Model as Model
from messi.evaluation.model import load as load
from messi.models.encoder import EncoderConfig as EncoderConfig
from messi.serving.export import export as export

# A scikit-learn estimator.
from messi.estimator import DomainClassifier as DomainClassifier

# Compare methods, and plans of your own runs.
from messi.api import Compared as Compared
from messi.api import compare as compare
from messi.core.run_documents import ExpectedAccuracy as ExpectedAccuracy
from messi.studies.compare import ComparisonConfig as ComparisonConfig
from messi.sweeps.launchers.local import Local as Local
from messi.sweeps.plan import Plan as Plan
from messi.sweeps.plan import PlannedRun as PlannedRun

# Methods, and MESSI's parts for other training loops.
from messi.algorithms.erm import ERM as ERM
from messi.algorithms.messi import MESSI as MESSI
from messi.losses.ssi.loss import ssi_loss as ssi_loss
from messi.models.head import MessiHead as MessiHead

# Data sets.
from messi.data.datasets.arrays import Arrays as Arrays
from messi.data.datasets.colored_mnist import ColoredMNIST as ColoredMNIST
from messi.data.datasets.domain_net import DomainNet as DomainNet
from messi.data.datasets.feature_table import FeatureTable as FeatureTable
from messi.data.datasets.folder import Folder as Folder
from messi.data.datasets.iwildcam import IWildCam as IWildCam
from messi.data.datasets.office_home import OfficeHome as OfficeHome
from messi.data.datasets.pacs import PACS as PACS
from messi.data.datasets.rotated_colored_mnist import RotatedColoredMNIST as RotatedColoredMNIST
from messi.data.datasets.rotated_mnist import RotatedMNIST as RotatedMNIST
from messi.data.datasets.table import Table as Table
from messi.data.datasets.terra_incognita import TerraIncognita as TerraIncognita
from messi.data.datasets.two_subsets import TwoSubsets as TwoSubsets
from messi.data.datasets.vlcs import VLCS as VLCS
from messi.data.datasets.wilds import Wilds as Wilds

# For your own method.
from messi.algorithms.common.base import Algorithm as Algorithm
from messi.algorithms.common.base import AlgorithmConfig as AlgorithmConfig
from messi.algorithms.common.base import LossAlgorithm as LossAlgorithm
from messi.algorithms.common.base import Stepper as Stepper
from messi.core.batch import Batch as Batch
from messi.core.batch import LossTerms as LossTerms
from messi.core.batch import Prediction as Prediction
from messi.core.batch import Task as Task
from messi.core.config import Bounds as Bounds
from messi.core.config import LogUniform as LogUniform
from messi.core.config import OneOf as OneOf
from messi.core.config import Uniform as Uniform
from messi.losses.by_domain import domain_mean_cross_entropy as domain_mean_cross_entropy

# For your own data set.
from messi.data.datasets.common.base import DataConfig as DataConfig
from messi.data.datasets.common.base import ImageData as ImageData
from messi.data.examples import Examples as Examples
from messi.data.images import Images as Images
