"""Holdfast trains reinforcement-learning policies and keeps the run under control."""
