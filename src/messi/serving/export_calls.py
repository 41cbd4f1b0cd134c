"""How to call an exported file, as it stands in its card: a few lines of Python without messi."""

from messi.data.cells import MISSING
from messi.data.image_files import LONGEST_SIDE
from messi.serving.export_facts import Facts
from messi.serving.export_inputs import raw_columns
from messi.serving.export_torch import METADATA

_READ = '''

def bounded(size):
    scale = min(1, {longest} / max(size))
    return [max(1, round(scale * side)) for side in size]


def read(path):
    """Read an image as in training: upright, and its longer side at most {longest} pixels."""
    image = Image.open(path)
    image.draft(None, [2 * side for side in bounded(image.size)])
    image = ImageOps.exif_transpose(image).convert("{mode}")
    pixels = np.array(image.resize(bounded(image.size), Image.Resampling.BICUBIC))
    return pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)[:{channels}]


'''
_ENCODE = '''columns = json.loads(metadata["columns"])


def text(value):
    """Return a cell as text, or None if it is missing; True becomes "true", and 10.0 and "10.0" become "10"."""
    if value is None or type(value).__name__ == "NAType":  # the latter is pandas.NA
        return None
    value = f"{{value:.17g}}" if isinstance(value, (float, np.floating)) else str(value).strip()
    value = unicodedata.normalize("NFC", value)
    if value.lower() in {missing}:
        return None
    if value.lower() in ("true", "false"):
        return value.lower()
    decimal = re.fullmatch(r"(-?(?:0|[1-9][0-9]*))[.]([0-9]*)", value)
    if decimal and decimal[2] in ("", "0"):
        return decimal[1]
    return repr(float(value)) if decimal and value == f"{{float(value):.17g}}" else value


def encode(row):
    """Return a row of numbers; a category becomes its index, or -1 if it is not known."""
    cells = []
    for column in columns:
        value = text(row.get(column["name"]))
        if value is None:
            cells.append(np.nan)
        elif column["categories"] is None:
            cells.append(float(value))
        else:
            names = [text(name) for name in column["categories"]]
            cells.append(names.index(value) if value in names else -1)
    return cells


row = {{column["name"]: None for column in columns}}  # your values; None is missing
'''
_ONNX = """import json
{standard}
import numpy as np
import onnxruntime
{imports}
session = onnxruntime.InferenceSession({file!r})
metadata = session.get_modelmeta().custom_metadata_map
classes = json.loads(metadata["classes"])
{read}{name} = {example}
{outputs} = session.run(None, {{"{name}": {name}}})
print(classes[probabilities[0].argmax()], probabilities[0].max())
"""
_TORCH = """import json
{standard}
import numpy as np
import torch
{imports}
extra = {{"{metadata}": ""}}
network = torch.export.load({file!r}, extra_files=extra).module()
metadata = json.loads(extra["{metadata}"])
classes = json.loads(metadata["classes"])
{read}{name} = {example}
with torch.inference_mode():
    {outputs} = network(torch.from_numpy({name}))
print(classes[int(probabilities[0].argmax())], float(probabilities[0].max()))
"""


def call(facts: Facts, to: str, file: str) -> str:
    """Return the description of inputs and outputs, and a program."""
    shape, columns = facts.model.spec.shape, raw_columns(facts.model.spec) if len(facts.model.spec.shape) == 1 else ()
    imports = read = standard = ""
    if len(shape) == 3:
        imports, example = "from PIL import Image, ImageOps\n", 'read("photo.jpg")[None]'
        read = _READ.format(longest=LONGEST_SIDE, mode="L" if shape[0] == 1 else "RGB", channels=shape[0])
    elif [column.name for column in columns] != [str(place) for place in range(len(columns))]:
        read, standard = _ENCODE.format(missing=MISSING), "import re\nimport unicodedata\n"
        example = "np.array([encode(row)], dtype=np.float64)"
    else:
        example = f"np.zeros((1, {len(columns)}), dtype=np.{_dtype(facts)})"
    program = (_ONNX if to == "onnx" else _TORCH).format(
        standard=standard,
        imports=imports,
        read=read,
        file=file,
        metadata=METADATA,
        name=facts.input.name,
        example=example,
        outputs=", ".join(facts.outputs) + ("," if len(facts.outputs) == 1 else ""),
    )
    return f"{_formats(facts)}\n\n```python\n{program}```"


def _formats(facts: Facts) -> str:
    spec = facts.model.spec
    if len(spec.shape) == 3:
        text = (
            f"Input `images`: uint8 [batch, {spec.shape[0]}, height, width], images of any size; those of one call "
            f"have the same size. The file itself resizes them to {spec.shape[1]} x {spec.shape[2]} pixels "
            f"(antialiased) and normalises them. Reduce images of more than {LONGEST_SIDE} pixels first, as below and "
            "as in training; without that, probabilities differ slightly from those of `messi predict`."
        )
    else:
        text = (
            f"Input `features`: {_dtype(facts)} [batch, {len(raw_columns(spec))}], the raw columns in the order of "
            "training. The file itself "
            + ("imputes missing values (NaN) and scales all numbers." if spec.mean else "does not scale them.")
        )
    if spec.columns:
        text += (
            " The metadata entry `columns` lists their names; a category is given as its index in the list of its "
            "column, and an unseen one as -1."
        )
    outputs = f"Output `probabilities`: float32 [batch, {len(facts.description.classes)}], in the order of the classes."
    if "experts" in facts.outputs:
        outputs += " Output `experts`: float32 [batch, experts], the router's weight of each expert."
    return f"{text}\n\n{outputs}"


def _dtype(facts: Facts) -> str:
    return str(facts.input.dtype).removeprefix("torch.")
