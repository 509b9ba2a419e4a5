"""`python -m gatekeeper.backends.mlx_tap`: the documented name of the tapped mlx_lm.server, which is in `workers`."""

from gatekeeper.backends.workers.mlx_server_tap import main

if __name__ == "__main__":
    main()
