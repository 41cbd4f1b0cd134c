"""Numbers as a page writes them."""


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits at most, and a true minus sign."""
    text = f"{value:.{digits}g}"
    return f"\u2212{text[1:]}" if text.startswith("-") else text
