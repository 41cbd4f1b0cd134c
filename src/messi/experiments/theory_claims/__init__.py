"""The statements of the paper's section 3, each checked on finite distributions; experiments/theory.py reports them."""
