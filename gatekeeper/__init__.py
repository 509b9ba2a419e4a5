"""gatekeeper: certify speculative decoding before it is deployed."""

__version__ = "0.1.0"
