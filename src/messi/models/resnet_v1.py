"""ResNet-50 as first published: the stride of a stage is in its first 1x1 convolution, not in the 3x3 one.

timm only has the later form (v1.5). Weights of the first form load into it by name, but give wrong features there.
"""

from typing import Any

from timm.models import generate_default_cfgs, register_model
from timm.models.resnet import Bottleneck, ResNet, resnet50

NAME = "resnet50_v1"
default_cfgs = generate_default_cfgs(
    {
        f"{NAME}.untrained": {
            "url": "",
            "input_size": (3, 224, 224),
            "num_classes": 1000,
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "first_conv": "conv1",
            "classifier": "fc",
        }
    }
)


@register_model
def resnet50_v1(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """Return timm's ResNet-50 with the strides moved; there are no published weights to download."""
    if pretrained:
        raise RuntimeError("timm has no pretrained weights for resnet50_v1")
    network: ResNet = resnet50(**kwargs)
    for module in network.modules():
        if isinstance(module, Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, module.conv1.stride
    return network
