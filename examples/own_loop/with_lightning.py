"""ELF in a LightningModule, on a ConvNeXt of transformers."""

import lightning
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from transformers import ConvNextConfig, ConvNextForImageClassification

from elfnet import attach_exits, export_network
from elfnet.losses import BalancedSoftmaxLoss, ELFLoss

digits = load_digits()
images = np.kron(digits.images * 15, np.ones((4, 4))).astype("uint8")[..., None].repeat(3, axis=3)
names, counts = [str(name) for name in digits.target_names], np.bincount(digits.target[:1000])
pixels = torch.from_numpy(images[:1000]).permute(0, 3, 1, 2) / 255 - 0.5


class EarlyExit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        sizes = {"hidden_sizes": [16, 32, 64, 64], "depths": [1] * 4, "patch_size": 2, "num_labels": 10}
        model = ConvNextForImageClassification(ConvNextConfig(**sizes))
        self.network = attach_exits(model, example=pixels[:4], exits=3)
        self.elf = ELFLoss(BalancedSoftmaxLoss(counts.tolist()), threshold=0.9)

    def training_step(self, batch, batch_idx):
        return self.elf(self.network(batch[0]), batch[1])[0]

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
model, data = EarlyExit(), TensorDataset(pixels, torch.from_numpy(digits.target[:1000]))
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(model, DataLoader(data, 50, shuffle=True))
about = {"class_names": names, "class_counts": counts, "mean": [0.5] * 3, "std": [1.0] * 3}
family = export_network(model.network, images[1000:1400], digits.target[1000:1400], "lightning.onnx", **about)
print(family.for_budget(0.6).expected)
