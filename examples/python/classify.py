"""Classify an image with ONNX Runtime alone: python classify.py MODEL.onnx IMAGE [OPERATING_POINT].

The image is cut and resized as `elfnet predict` does it; large ones may differ a little.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
text = session.get_modelmeta().custom_metadata_map
how, points, names = (json.loads(text[f"elfnet:{key}"]) for key in ("preprocessing", "operating_points", "class_names"))
cut, edge = (ImageOps.fit, 0.5 - how["crop_share"] / 2) if "centre" in how["resize"] else (Image.Image.resize, None)
photo, w, h = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert(how["mode"]), how["width"], how["height"]
inputs = {"images": np.asarray(cut(photo, (w, h), Image.BILINEAR, edge)).reshape(1, h, w, -1)}
for point in sys.argv[3:]:  # otherwise the file's default operating point
    inputs |= {name: np.array([values], np.float32) for name, values in points[point].items()}
index, confidence, number = session.run(["class", "confidence", "exit"], inputs)
print(names[index[0]], confidence[0], "exit", number[0])  # noqa: T201
