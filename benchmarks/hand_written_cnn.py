"""What an expert writes by hand in the first hour, as the competitor of `elfnet train folder`.

    python benchmarks/hand_written_cnn.py FOLDER --seed 0

FOLDER has `train` and `test`, each with one folder per class; `calibration`, `val` or `validation`, if there, is
measured but not used. A small convolutional network in plain PyTorch, without elfnet: AdamW, one-cycle schedule,
logit-adjusted cross-entropy, random shifts, and flips of colour images. If FOLDER has `train.npz` and `test.npz`
instead (arrays `X` and `y`), a perceptron of two hidden layers is trained on the rows in the same way. It prints
balanced accuracy and CPU seconds as one line of JSON.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

SPLITS = ("train", "calibration", "val", "validation", "test")
BATCH = 64


def read_split(folder: Path, classes: list[str], side: int) -> tuple[Tensor, Tensor]:
    """All images of a split, squeezed to a square, as bytes (N, 3, side, side), with their labels (N,)."""
    images, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()) if (folder / name).is_dir() else ():
            with Image.open(path) as image:
                images.append(np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)))
            labels.append(label)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def small_cnn(classes: int, side: int) -> nn.Sequential:
    """Blocks of a 3 x 3 convolution and a maximum pool, then a small classifier; large images begin at stride 2."""
    widths = (32, 64, 128) if side <= 40 else (32, 64, 128, 256)
    layers: list[nn.Module] = []
    for channels, width in zip((3, *widths), widths, strict=False):
        layers += [
            nn.Conv2d(channels, width, 3, stride=2 if side > 64 and channels == 3 else 1, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ]
    features = widths[-1] * 16
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(features, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, classes),
    )


def small_perceptron(classes: int, features: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(features, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(128, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, classes),
    )


def read_rows(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """The rows of both splits, standardised by the training rows, with their labels."""
    splits = {}
    for name in ("train", "test"):
        with np.load(folder / f"{name}.npz") as file:
            splits[name] = torch.from_numpy(file["X"]).float(), torch.from_numpy(file["y"])
    values, _ = splits["train"]
    mean, std = values.mean(0), values.std(0).clamp(min=1e-6)
    return {name: ((rows - mean) / std, labels) for name, (rows, labels) in splits.items()}


def read_images(folder: Path, side: int) -> tuple[dict[str, tuple[Tensor, Tensor]], int, bool]:
    """The images of all splits, standardised by the training images; the side; whether mirror images are shown."""
    classes = sorted(place.name for place in (folder / "train").iterdir() if place.is_dir())
    with Image.open(next((folder / "train" / classes[0]).iterdir())) as first:
        side = side or (32 if min(first.size) <= 64 else 96)
        flip = first.mode == "RGB"
    splits = {s: read_split(folder / s, classes, side) for s in SPLITS if (folder / s).is_dir()}
    values = splits["train"][0].float()
    mean, std = values.mean((0, 2, 3), keepdim=True), values.std((0, 2, 3), keepdim=True)
    return {name: ((one.float() - mean) / std, label) for name, (one, label) in splits.items()}, side, flip


def shifted(images: Tensor, pad: int, *, flip: bool) -> Tensor:
    """Shift every image by up to `pad` pixels, and mirror half of them."""
    number, _, side, _ = images.shape
    padded = functional.pad(images, (pad,) * 4)
    moved = torch.empty_like(images)
    tops, lefts = torch.randint(0, 2 * pad + 1, (2, number)).tolist()
    mirrors = torch.rand(number).tolist()
    for row, (top, left, mirror) in enumerate(zip(tops, lefts, mirrors, strict=True)):
        cut = padded[row, :, top : top + side, left : left + side]
        moved[row] = cut.flip(-1) if flip and mirror < 0.5 else cut
    return moved


def balanced_accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Mean over classes of the share of right answers, in per cent."""
    network.eval()
    with torch.no_grad():
        answers = torch.cat([network(part).argmax(1) for part in torch.split(images, 256)])
    hits = [float((answers[labels == c] == c).float().mean()) for c in torch.unique(labels).tolist()]
    return 100 * sum(hits) / len(hits)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small CNN by hand on a folder of images.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=0, help="0: 32 for images of up to 64 pixels, else 96")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    began, worked = time.perf_counter(), time.process_time()
    is_rows, side, flip = (args.folder / "train.npz").is_file(), 0, False
    if is_rows:
        ready = read_rows(args.folder)
    else:
        ready, side, flip = read_images(args.folder, args.side)
    images, labels = ready["train"]
    classes = int(labels.max()) + 1
    prior = functional.one_hot(labels, classes).float().mean(0).log()
    network = small_perceptron(classes, images.shape[1]) if is_rows else small_cnn(classes, side)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
    steps = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps * args.epochs)
    for _ in range(args.epochs):
        network.train()
        for rows in torch.split(torch.randperm(len(images)), BATCH):
            logits = network(images[rows] if is_rows else shifted(images[rows], side // 10, flip=flip))
            loss = functional.cross_entropy(logits + prior, labels[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    found = {
        "balanced_accuracy": {
            name: round(balanced_accuracy(network, *split), 2) for name, split in ready.items() if name != "train"
        },
        "cpu_seconds": round(time.process_time() - worked, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "side": side,
        "epochs": args.epochs,
        "seed": args.seed,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
