"""What the tests of suites share."""

TASK_TEXT = """
[[tasks]]
config = "sst2"
train = "train.tsv"
dev = "dev.tsv"
"""
"""A task in a suite's file."""
