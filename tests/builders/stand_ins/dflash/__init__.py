"""A stand-in for the dflash package: its MLX side, with drafts that are right as often as a fixed pattern says."""
