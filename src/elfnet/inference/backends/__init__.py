"""What runs the stages of a model: ONNX Runtime, OpenVINO, or torch."""
