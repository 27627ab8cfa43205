"""ELF in a loop of accelerate: any number of devices, mixed precision; LDAM with deferred class weights."""

import numpy as np
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from elfnet import build_network, export_network
from elfnet.losses import DeferredReweighting, ELFLoss, LDAMLoss, class_weights

digits = load_digits()
images = np.kron(digits.images * 15, np.ones((4, 4))).astype("uint8")[..., None]
names, counts = [str(name) for name in digits.target_names], np.bincount(digits.target[:1000]).tolist()
pixels = torch.from_numpy(images[:1000]).permute(0, 3, 1, 2) / 255 - 0.5

torch.manual_seed(0)
accelerator = Accelerator()
network = build_network("resnet8", classes=10, image_channels=1, head="cosine")  # LDAM wants cosines
loader = DataLoader(TensorDataset(pixels, torch.from_numpy(digits.target[:1000])), 50, shuffle=True)
elf = ELFLoss(LDAMLoss(counts), threshold="2/C", confidence_scale=30.0).to(accelerator.device)
reweighting = DeferredReweighting(class_weights(counts, "effective"), start=1)
network, optimizer, loader = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=1e-3), loader)
for epoch in range(2):
    weights_C = reweighting(epoch)
    for inputs, labels in loader:
        loss, exit_B = elf(network(inputs), labels, weights_C=weights_C)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print(f"epoch {epoch + 1}: loss {loss:.2f}, mean exit {exit_B.float().mean() + 1:.1f}")

if accelerator.is_main_process:
    about = {"class_names": names, "class_counts": counts, "mean": [0.5], "std": [1.0]}
    held_out, network = (images[1000:1400], digits.target[1000:1400]), accelerator.unwrap_model(network).cpu()
    print(export_network(network, *held_out, "accelerate.onnx", **about).for_budget(0.6).expected)
