"""How far below the head the layers of an encoder are, for learning rates that decay with the depth."""

from typing import Any

from torch import nn


def layers_below_head(network: Any) -> dict[nn.Parameter, int]:
    """Return for every parameter how many layers its layer is below the head: 1 for the last layer.

    The layers of a timm model are those that timm itself counts: the embedding or stem, then every block. What timm
    counts as part of the head, such as a norm after the pooling, has the number 0.
    """
    if not hasattr(network, "pretrained_cfg"):
        numbers = _in_order(network)
        head = max(numbers.values(), default=0) + 1
        return {parameter: head - numbers[name] for name, parameter in network.named_parameters()}
    # Here, because timm takes longer to import than torch.
    from timm.models._manipulate import group_with_matcher  # noqa: PLC0415
    from timm.optim._param_groups import auto_group_layers  # noqa: PLC0415

    if hasattr(network, "group_matcher"):
        # The encoder was built without a head, but timm counts it as a layer: add its name.
        names = [*network.named_parameters(), (f"{_head_name(network)}.weight", None)]
        numbers = group_with_matcher(iter(names), network.group_matcher(coarse=False), reverse=True)
        head = max(numbers.values())
    else:
        numbers = auto_group_layers(network)  # type: ignore[no-untyped-call]  # timm's own has no types
        head = max(numbers.values(), default=0) + 1
    return {parameter: head - numbers[name] for name, parameter in network.named_parameters()}


def _in_order(network: nn.Module) -> dict[str, int]:
    """Number the layers of a small network; every weight with more than one dimension starts a new one."""
    numbers: dict[str, int] = {}
    number = 0
    for name, parameter in network.named_parameters():
        if numbers and parameter.dim() > 1:
            number += 1
        numbers[name] = number
    return numbers


def _head_name(network: Any) -> str:
    names = network.pretrained_cfg.get("classifier") or "head"
    return names if isinstance(names, str) else str(names[0])
