"""A stand-in for Apple's ml-recurrent-drafter: its MLX side, drafting as often right as a fixed pattern says."""
