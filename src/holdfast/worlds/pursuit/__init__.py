"""Pursuit and evasion on a plane: two agents a game, obstacles, partial observation."""

from holdfast.worlds.pursuit.options import PursuitOptions
from holdfast.worlds.pursuit.world import PursuitWorld

__all__ = ["PursuitOptions", "PursuitWorld"]
