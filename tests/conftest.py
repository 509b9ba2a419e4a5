"""What all tests share: properties are judged by what they find, never by how long this machine takes to look."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
