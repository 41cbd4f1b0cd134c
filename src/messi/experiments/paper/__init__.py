"""The numbers that the paper prints, table by table, to stand beside ours; none of them was measured here."""
