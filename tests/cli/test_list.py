"""``messi list`` and ``messi info``."""

import pytest

from tests.command import messi


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "algorithms"), ("messi", "erm", "ssi_weight", "0.01", "10^U(-3, -1)")),
        (("list", "algorithms", "c*"), ("coral", "cdann", "gamma")),
        (("list", "recipes"), ("default for pretrained networks", "MESSI as in the paper", "erm_swad", "averaging")),
        (("list", "protocols"), ("learning_rate", "10^U(-5, -3.5)", "10^U(-4.5, -2.5)", "2^U(3, 5.5)")),
        (("list", "datasets"), ("folder", "rotated_colored_mnist", "two_subsets")),
        (("list", "backbones", "deit_t*"), ("deit_tiny_patch16_224",)),
        (("info",), ("torch", "python", "gpu")),
        (("--help",), ("train", "predict", "report")),
    ],
)
def test_list_and_info_print_the_expected_entries(arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    done = messi(*arguments)
    assert done.returncode == 0
    assert all(word in done.stdout for word in expected)
