"""The stage on which `outbox demo` plays the scenes of each context's `demo` module."""

from outbox_kernel.infrastructure.demo.play import NothingToShow, play, scenes_of
from outbox_kernel.infrastructure.demo.stage import Scene, Stage

__all__ = ["NothingToShow", "Scene", "Stage", "play", "scenes_of"]
