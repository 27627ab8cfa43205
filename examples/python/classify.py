"""Classify images with ONNX Runtime alone: python classify.py MODEL.onnx IMAGE [OPERATING_POINT]."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = session.get_modelmeta().custom_metadata_map
size = json.loads(metadata["elfnet:preprocessing"])
picture = Image.open(sys.argv[2]).convert(size["mode"]).resize((size["width"], size["height"]))
inputs = {"images": np.asarray(picture, np.uint8).reshape(1, size["height"], size["width"], -1)}
if len(sys.argv) > 3:  # otherwise the file's default operating point
    point = json.loads(metadata["elfnet:operating_points"])[sys.argv[3]]
    inputs |= {name: np.array([values], np.float32) for name, values in point.items()}
index, confidence, number = session.run(["class", "confidence", "exit"], inputs)
print(json.loads(metadata["elfnet:class_names"])[index[0]], confidence[0], "exit", number[0])  # noqa: T201
