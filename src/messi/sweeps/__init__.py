"""Plans of many runs, and the launchers that run them."""
