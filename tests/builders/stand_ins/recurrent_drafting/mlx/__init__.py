"""The MLX side."""
