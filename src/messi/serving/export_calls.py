"""How to call an exported file, as it stands in its card: a few lines of Python without messi."""

from messi.data.image_files import LONGEST_SIDE
from messi.serving.export_facts import Facts
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
_ONNX = """import json

import numpy as np
import onnxruntime
{imports}
session = onnxruntime.InferenceSession({file!r})
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
{read}{name} = {example}
{outputs} = session.run(None, {{"{name}": {name}}})
print(classes[probabilities[0].argmax()], probabilities[0].max())
"""
_TORCH = """import json

import numpy as np
import torch
{imports}
extra = {{"{metadata}": ""}}
network = torch.export.load({file!r}, extra_files=extra).module()
classes = json.loads(json.loads(extra["{metadata}"])["classes"])
{read}{name} = {example}
with torch.inference_mode():
    {outputs} = network(torch.from_numpy({name}))
print(classes[int(probabilities[0].argmax())], float(probabilities[0].max()))
"""


def call(facts: Facts, to: str, file: str) -> str:
    """Return the description of inputs and outputs, and a program."""
    shape = facts.model.spec.shape
    if len(shape) == 3:
        channels = shape[0]
        mode = "L" if channels == 1 else "RGB"
        read = _READ.format(longest=LONGEST_SIDE, mode=mode, channels=channels)
        imports, example = "from PIL import Image, ImageOps\n", 'read("photo.jpg")[None]'
    else:
        read, imports, example = "", "", f"np.zeros((1, {shape[0]}), dtype=np.float32)"
    program = (_ONNX if to == "onnx" else _TORCH).format(
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
    shape = facts.model.spec.shape
    if len(shape) == 3:
        text = (
            f"Input `images`: uint8 [batch, {shape[0]}, height, width], images of any size; those of one call have the "
            f"same size. The file itself resizes them to {shape[1]} x {shape[2]} pixels (antialiased) and normalises "
            f"them. Reduce images of more than {LONGEST_SIDE} pixels first, as below and as in training; without "
            "that, probabilities differ slightly from those of `messi predict`."
        )
    else:
        text = f"Input `features`: float32 [batch, {shape[0]}], as in the training data."
    outputs = f"Output `probabilities`: float32 [batch, {len(facts.description.classes)}], in the order of the classes."
    if "experts" in facts.outputs:
        outputs += " Output `experts`: float32 [batch, experts], the router's weight of each expert."
    return f"{text}\n\n{outputs}"
