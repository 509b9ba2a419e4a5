"""The number of the rules of judging: a module of its own, as `--version` prints it and loads nothing else."""

RULES = 3
"""The rules by which runs are planned and judged; the number goes up where stored records would be judged otherwise
than the run itself was."""
