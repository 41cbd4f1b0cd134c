"""What the service sends: the JSON documents, which are also its OpenAPI description."""

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str = Field(description="One sentence: what is wrong, and what to do.")


class Likeness(BaseModel):
    """How the input compares with the training domains."""

    nearest_domain: str = Field(description="The source domain with the most similar examples.")
    distance: float = Field(description="Mean distance to the most similar examples of the training domains.")
    threshold: float = Field(description="95 % of held-out examples of the training domains are within it.")
    unlike_training: bool = Field(description="Whether the distance exceeds the threshold: do not trust the class.")


class Answer(BaseModel):
    """The prediction for one input."""

    label: str = Field(serialization_alias="class", description="The most probable class.")
    probability: float
    probabilities: dict[str, float] = Field(description="By class.")
    experts: list[float] | None = Field(description="Router weights; null if the method has no router.")
    active_experts: list[int] | None = Field(
        description="The experts with at least an equal share of the weight, the heaviest first, counted from 1."
    )
    likeness: Likeness | None = Field(description="null if the service has no bank of known examples.")
    notes: list[str] = Field(description="What to know about the input, such as a category that is not known.")


class Answers(BaseModel):
    """The predictions for all inputs of a request, in their order."""

    predictions: list[Answer]


class Health(BaseModel):
    """Whether the service works."""

    status: str = "ok"
    waiting: int = Field(description="Number of inputs in the queue.")


class ServiceLimits(BaseModel):
    """What a request may cost."""

    body_bytes: int
    pixels: int = Field(description="Pixels of one image.")
    queue: int = Field(description="Inputs that may wait at a time, and so the most inputs of a request.")
    seconds: float = Field(description="Time until a request is given up.")


class Detected(BaseModel):
    """How often the warning is right for one unseen domain."""

    examples: int
    warned: float = Field(description="The share of its examples that get the warning.")
    auroc: float = Field(description="Probability that one of them is farther away than a known example.")


class WarningQuality(BaseModel):
    """How far to trust the warning, as measured with the data of the run."""

    accepted: float = Field(description="The share of held-out examples of known domains without a warning.")
    left_out: dict[str, Detected] = Field(description="By training domain, with its examples taken out of the bank.")
    target: dict[str, Detected] = Field(description="By target domain of the run.")
    nearest_right: float | None = Field(description="How often the nearest domain of a known example is its own.")


class ModelInfo(BaseModel):
    """The model that answers."""

    inputs: str = Field(description='"images" or "features".')
    features: list[str] | None = Field(description="The names of the columns, or null if they have none.")
    num_features: int | None
    classes: list[str]
    training_domains: list[str]
    algorithm: str
    expected_accuracy: str | None = Field(description="On a new domain, as measured on held-out domains.")
    warning_quality: WarningQuality | None
    no_warning_because: str | None = Field(description="Why the service cannot warn of unlike inputs.")
    messi_version: str = Field(description="The version that trained the model.")
    licence: str = Field(description="Of messi; the licence of the weights follows from the data and the backbone.")
    limits: ServiceLimits
