"""How tables, charts and pages write numbers: with a true minus sign, and shares in percent."""

MINUS = "\u2212"


def percent(share: float) -> str:
    """Return a share in percent with one decimal."""
    return f"{100 * share:.1f}"


def significant(value: float, digits: int = 3) -> str:
    """Return a number with at most ``digits`` significant digits."""
    return f"{value:.{digits}g}".replace("-", MINUS, 1) if value < 0 else f"{value:.{digits}g}"


def decimal(value: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with a fixed number of decimals, on request with a plus sign."""
    rounded = round(value, digits) + 0.0  # turns -0.0 into 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{digits}f}".replace("-", MINUS)


def with_spread(mean: str, spread: str) -> str:
    """Return a mean and its spread, which may be empty."""
    return f"{mean} ± {spread}" if spread else mean
