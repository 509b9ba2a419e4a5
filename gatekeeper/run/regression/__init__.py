"""Regressions: this run against the certified one, one version against another, and the version that broke it."""
