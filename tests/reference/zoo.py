"""The models of the zoo of Phalanx as PyTorch modules, with the names the zoo gives their parameters."""

import torch
import torch.nn.functional as F
from torch import nn


class DigitsCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv2d_1 = nn.Conv2d(1, 16, 3, padding=1)
        self.dropout_1 = nn.Dropout(0.25)
        self.bn_1 = nn.BatchNorm2d(16)
        self.conv2d_2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout_2 = nn.Dropout(0.25)
        self.bn_2 = nn.BatchNorm2d(32)
        self.dense_1 = nn.Linear(32, 256)
        self.dropout_3 = nn.Dropout(0.4)
        self.bn_3 = nn.BatchNorm1d(256)
        self.dense_2 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.dropout_1(F.max_pool2d(F.relu(self.conv2d_1(x)), 2))
        x = F.max_pool2d(self.bn_1(x), 2)
        x = self.dropout_2(F.max_pool2d(F.relu(self.conv2d_2(x)), 2))
        x = torch.flatten(self.bn_2(x), 1)
        x = self.bn_3(self.dropout_3(F.relu(self.dense_1(x))))
        return F.softmax(self.dense_2(x), dim=-1)


class CifarCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(2048, 256)
        self.dropout2 = nn.Dropout(0.5)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        return self.fc2(self.dropout2(F.relu(self.fc1(x))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class GptAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (y.view(n, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(n, t, d))


class GptMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.proj(F.gelu(self.fc(x)))


class GptBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = GptAttention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = GptMlp(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln1(x)))
        return x + self.dropout(self.mlp(self.ln2(x)))


class Gpt(nn.Module):
    def __init__(self, vocabulary=1000, context=128, width=256, heads=4, layers=4, dropout=0.1, tied=False):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.wte(tokens) + self.wpe(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def mobilenet_v2(num_classes=1000):
    import torchvision

    return torchvision.models.mobilenet_v2(num_classes=num_classes)


def resnet_18(num_classes=1000):
    import torchvision

    return torchvision.models.resnet18(num_classes=num_classes)


def cross_entropy(output, target):
    """Over all positions: the classes are the last dimension."""
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def mse_one_hot(output, target):
    return F.mse_loss(output, F.one_hot(target, output.shape[-1]).to(output.dtype))


# name: (module, loss, shape of one input, number of classes); an input of token ids has the shape (context,)
ZOO = {
    "digits-cnn": (DigitsCnn, mse_one_hot, (1, 8, 8), 10),
    "cifar-cnn": (CifarCnn, cross_entropy, (3, 32, 32), 10),
    "mobilenet-v2": (mobilenet_v2, cross_entropy, (3, 224, 224), 1000),
    "resnet-18": (resnet_18, cross_entropy, (3, 224, 224), 1000),
    "gpt-small": (Gpt, cross_entropy, (128,), 1000),
    "mlp": (Mlp, cross_entropy, (784,), 10),
}


def set_dropout(module, p=0.0):
    """Sets every dropout and stochastic depth of `module`, so that two engines give the same numbers."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = p
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = p
        elif type(part).__name__ == "StochasticDepth":
            part.p = p
    return module
