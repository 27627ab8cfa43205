"""ELF in a plain loop: a backbone with exits, from images to one file that stops early."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import ResNetConfig, ResNetForImageClassification

from elfnet import attach_exits, export_network, load
from elfnet.losses import CrossEntropyLoss, ELFLoss

digits = load_digits()
images = np.kron(digits.images * 15, np.ones((4, 4))).astype("uint8")[..., None].repeat(3, axis=3)
names, counts = [str(name) for name in digits.target_names], np.bincount(digits.target[:1000])


def batch(rows):
    pixels = torch.from_numpy(images[rows]).permute(0, 3, 1, 2) / 255
    return pixels - 0.5, torch.from_numpy(digits.target[rows])


torch.manual_seed(0)
sizes = {"hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic", "embedding_size": 16}
model = ResNetForImageClassification(ResNetConfig(**sizes, num_labels=10))
network = attach_exits(model, example=batch(range(4))[0], exits=3).train()
elf = ELFLoss(CrossEntropyLoss(), threshold=0.9)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
for epoch in range(2):
    for rows in torch.randperm(1000).split(50):
        inputs, labels = batch(rows.numpy())
        loss, exit_B = elf(network(inputs), labels)  # the network returns the logits of all exits, (E, B, C)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss:.2f}, mean exit {exit_B.float().mean() + 1:.1f}")

held_out = images[1000:1400], digits.target[1000:1400]
about = {"class_names": names, "class_counts": counts, "mean": [0.5] * 3, "std": [1.0] * 3}
point = export_network(network, *held_out, "plain.onnx", **about).for_budget(0.6)
print(f"{point.name}: {100 * point.expected.accuracy:.1f} % at {point.expected.mean_cost:.2f} of the cost")
print(load("plain.onnx").predict(images[1500])[0].label)
