"""Whether exactness is judged rightly where a pass of several tokens is another function than one of a single token."""
