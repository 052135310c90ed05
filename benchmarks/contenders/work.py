"""Define the training of the contenders: a small network by name, on noise that is held in memory or augmented."""

import itertools

import torch
from torch import Tensor, nn

SAMPLES = 2048
CLASSES = 10
WORDS, LENGTH = 1000, 32


class Augmented(torch.utils.data.Dataset):
    """Dataset whose samples are flipped at random when they are read, the least that an augmenting dataset does."""

    def __init__(self, *tensors: Tensor) -> None:
        self.x, self.y = tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.x[index]
        return (x.flip(-1) if torch.rand(()) < 0.5 else x), self.y[index]


class Transformer(nn.Module):
    """Transformer of two layers over sequences of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.answer = nn.Linear(64, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        """Compute the class scores from the mean over all words."""
        return self.answer(self.layers(self.words(words)).mean(1))


def cnn(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * 64, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def deep() -> nn.Module:
    """Return a CNN of 3 million parameters, with BatchNorm after each convolution."""
    widths = itertools.pairwise([3, 64, 128, 256, 512])
    layers: list[nn.Module] = []
    for inputs, outputs in widths:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 4, 700), nn.ReLU(), nn.Linear(700, CLASSES))


def mlp(width: int) -> nn.Module:
    sizes = itertools.pairwise([64, width, width])
    layers = [layer for inputs, outputs in sizes for layer in (nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def train_data(net="cnn", augmented=True):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    if net == "transformer":
        return torch.utils.data.TensorDataset(torch.randint(WORDS, (SAMPLES, LENGTH), generator=generator), y)
    x = torch.randn(SAMPLES, *((64,) if net == "mlp" else (3, 32, 32)), generator=generator)
    return Augmented(x, y) if augmented else torch.utils.data.TensorDataset(x, y)


def model(net="cnn", width=32):
    if net == "transformer":
        return Transformer()
    if net == "deep":
        return deep()
    return mlp(width) if net == "mlp" else cnn(width)


def optimizer(params, lr=1e-3):
    return torch.optim.AdamW(params, lr=lr)


def loss(output, target):
    return nn.functional.cross_entropy(output, target)
