"""ELF in the Trainer of transformers, on its ResNet."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

from elfnet import attach_exits, export_network
from elfnet.losses import CrossEntropyLoss, ELFLoss

digits = load_digits()
images = np.kron(digits.images * 15, np.ones((4, 4))).astype("uint8")[..., None].repeat(3, axis=3)
names, counts = [str(name) for name in digits.target_names], np.bincount(digits.target[:1000])
pixels = torch.from_numpy(images[:1000]).permute(0, 3, 1, 2) / 255 - 0.5


class EarlyExit(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = {"hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic", "embedding_size": 16}
        model = ResNetForImageClassification(ResNetConfig(**sizes, num_labels=10))
        self.network = attach_exits(model, example=pixels[:4], exits=3)
        self.elf = ELFLoss(CrossEntropyLoss(), threshold=0.9)

    def forward(self, pixel_values, labels):
        logits_EBC = self.network(pixel_values)
        return {"loss": self.elf(logits_EBC, labels)[0], "logits": logits_EBC[-1]}


torch.manual_seed(0)
model = EarlyExit()
rows = [{"pixel_values": image, "labels": int(label)} for image, label in zip(pixels, digits.target, strict=False)]
settings = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "max_steps": 20}
arguments = TrainingArguments("trainer", per_device_train_batch_size=50, learning_rate=1e-3, **settings)
Trainer(model=model, args=arguments, train_dataset=rows).train()
about = {"class_names": names, "class_counts": counts, "mean": [0.5] * 3, "std": [1.0] * 3}
family = export_network(model.network, images[1000:1400], digits.target[1000:1400], "trainer.onnx", **about)
print(family.for_budget(0.6).expected)
