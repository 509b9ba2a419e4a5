"""gatekeeper: certify speculative decoding before it is deployed."""

__version__ = "0.3.0"
