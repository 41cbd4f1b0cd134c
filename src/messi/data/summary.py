"""One line that says what data there is, and what of it a network sees."""

from messi.core.batch import InputSpec
from messi.data.examples import Examples
from messi.data.images import Images


def summary(examples: Examples, spec: InputSpec | None = None) -> str:
    """Return the numbers of examples, domains and classes, the size of the inputs, and what images are resized to."""
    numbers = f"{len(examples):,} examples, {len(examples.domain_names)} domains, {len(examples.classes)} classes"
    inputs = examples.inputs
    if not isinstance(inputs, Images):
        return f"{numbers}, {inputs.shape[1]} features"
    smallest, largest = inputs.sizes.amin(0).tolist(), inputs.sizes.amax(0).tolist()
    sizes = _size(largest) if smallest == largest else f"{_size(smallest)} to {_size(largest)}"
    if spec is None or smallest == largest == list(spec.shape[1:]):
        return f"{numbers}, images {sizes}"
    return f"{numbers}, images {sizes}, resized to {_size(spec.shape[1:])}"


def _size(shape: list[int] | tuple[int, ...]) -> str:
    height, width = shape
    return f"{width} x {height}"
