"""Backends that compute the stages and heads of a network: ONNX Runtime, OpenVINO and torch.

Only the module `torch` may import torch; `build` imports each backend when it is opened.
"""
