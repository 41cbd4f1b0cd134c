"""Plans of many runs, and what starts them."""
