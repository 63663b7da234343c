"""Helpers for all subpackages: checks of arguments, files, logging, marks of public calls."""
