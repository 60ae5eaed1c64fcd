"""Formats of graphs on disk: one module each, found by file name or by what a folder holds."""
