"""Slow, obvious numpy/float64 versions of the ops, formats and the llama forward pass.

Nothing here imports pyggml: an oracle that shares code with what it judges proves nothing.
Import the modules by name: ``from oracles import formats, norm``.
"""
