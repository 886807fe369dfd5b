"""Writes what PyTorch computes for the losses, optimizers and schedules: python make.py (torch 2.x)."""

import json
import pathlib

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
torch.manual_seed(7)


def flat(tensor):
    return [float(f"{v:.9g}") for v in tensor.detach().double().flatten().tolist()]


def write(name, value):
    rows = ",\n".join(json.dumps(row) for row in value)
    (HERE / name).write_text(f"[\n{rows}\n]\n")


def losses():
    def case(loss, function, output, target):
        output = output.clone().requires_grad_()
        # In double precision: what the right answer is, not how PyTorch rounds.
        value = function(output.double(), target.double() if target.is_floating_point() else target)
        value.backward()
        return {
            "loss": loss,
            "shape": list(output.shape),
            "output": flat(output),
            "target_shape": list(target.shape),
            "target": flat(target),
            "value": value.item(),
            "gradient": flat(output.grad),
        }

    def hot(function):
        return lambda x, y: function(x, F.one_hot(y, x.shape[-1]).to(x.dtype))

    x, y = torch.randn(5, 7), torch.randn(5, 7)
    classes = torch.tensor([0, 6, 3, 3, 1])
    image, labels = torch.randn(2, 4, 3, 2), torch.randint(0, 4, (2, 3, 2))
    tokens, words = torch.randn(2, 5, 6), torch.randint(0, 6, (2, 5))
    mix = torch.softmax(torch.randn(5, 7), 1)
    probability = torch.rand(6, 3)
    probability[0] = torch.tensor([0.0, 1.0, 1.0])
    wanted = torch.rand(6, 3)
    wanted[0] = torch.tensor([1.0, 0.0, 1.0])
    big = torch.randn(6, 3) * 20
    return [
        case({"name": "mse"}, F.mse_loss, x, y),
        case({"name": "mse"}, hot(F.mse_loss), x, classes),
        case({"name": "l1"}, F.l1_loss, x, y),
        case({"name": "l1"}, hot(F.l1_loss), x, classes),
        case({"name": "huber", "delta": 0.5}, lambda a, b: F.huber_loss(a, b, delta=0.5), x, y),
        case({"name": "cross_entropy"}, F.cross_entropy, x * 5, classes),
        case({"name": "cross_entropy"}, F.cross_entropy, image, labels),
        case({"name": "cross_entropy"}, lambda a, b: F.cross_entropy(a.flatten(0, 1), b.flatten()), tokens, words),
        case(
            {"name": "cross_entropy", "smoothing": 0.125},
            lambda a, b: F.cross_entropy(a, b, label_smoothing=0.125),
            image,
            labels,
        ),
        case({"name": "cross_entropy"}, F.cross_entropy, x, mix),
        case(
            {"name": "cross_entropy", "smoothing": 0.25},
            lambda a, b: F.cross_entropy(a, b, label_smoothing=0.25),
            x,
            mix,
        ),
        case({"name": "bce"}, F.binary_cross_entropy, probability, wanted),
        case({"name": "bce_with_logits"}, F.binary_cross_entropy_with_logits, big, wanted),
        case({"name": "bce_with_logits"}, hot(F.binary_cross_entropy_with_logits), x, classes),
        case({"name": "nll"}, F.nll_loss, torch.log_softmax(x, 1), classes),
        case({"name": "nll"}, F.nll_loss, torch.log_softmax(image, 1), labels),
    ]


def optimizers():
    rules = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
        "adagrad": torch.optim.Adagrad,
    }
    settings = [
        {"name": "sgd", "lr": 0.1},
        {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        {"name": "sgd", "lr": 0.05, "momentum": 0.8, "dampening": 0.3},
        {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"name": "adam", "lr": 0.01},
        {"name": "adam", "lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1},
        {"name": "adam", "lr": 0.02, "amsgrad": True},
        {"name": "adamw", "lr": 0.01},
        {"name": "adamw", "lr": 0.03, "weight_decay": 0.2, "amsgrad": True},
        {"name": "rmsprop"},
        {"name": "rmsprop", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.01},
        {"name": "rmsprop", "lr": 0.02, "alpha": 0.9, "centered": True},
        {"name": "rmsprop", "lr": 0.01, "momentum": 0.5, "centered": True},
        {"name": "adagrad"},
        {
            "name": "adagrad",
            "lr": 0.1,
            "lr_decay": 0.01,
            "weight_decay": 0.01,
            "initial_accumulator_value": 0.5,
            "eps": 1e-8,
        },
    ]
    start = torch.randn(6)
    center = torch.tensor([0.5, -1.0, 0.0, 2.0, -0.25, 1.0])
    cases = []
    for setting in settings:
        arguments = {k: v for k, v in setting.items() if k != "name"}
        parameter = start.clone().requires_grad_()
        optimizer = rules[setting["name"]]([parameter], **arguments)
        path = []
        for step in range(50):
            # Every operation is one IEEE operation: the same gradient for everyone.
            parameter.grad = (parameter.detach() - center) * 0.5 + (step % 3 - 1) * 0.25
            optimizer.step()
            if step in (0, 1, 9, 49):
                path.append({"steps": step + 1, "parameter": flat(parameter)})
        state = {
            k: flat(v) for k, v in optimizer.state[parameter].items() if k != "step" and torch.is_tensor(v)
        }
        cases.append(
            {"optimizer": setting, "start": flat(start), "center": flat(center), "path": path, "state": state}
        )
    return cases


def schedules():
    S = torch.optim.lr_scheduler
    total = 40
    cases = [
        ({"name": "constant"}, lambda o: S.ConstantLR(o, factor=1.0)),
        ({"name": "step", "every": 7, "gamma": 0.5}, lambda o: S.StepLR(o, 7, 0.5)),
        ({"name": "cosine"}, lambda o: S.CosineAnnealingLR(o, total)),
        ({"name": "cosine", "min_lr": 0.01}, lambda o: S.CosineAnnealingLR(o, total, eta_min=0.01)),
        ({"name": "exponential", "gamma": 0.9}, lambda o: S.ExponentialLR(o, 0.9)),
        ({"name": "one_cycle", "max_lr": 0.5}, lambda o: S.OneCycleLR(o, 0.5, total_steps=total)),
        (
            {"name": "one_cycle", "max_lr": 0.5, "pct_start": 0.2, "div_factor": 10.0, "final_div_factor": 50.0},
            lambda o: S.OneCycleLR(
                o, 0.5, total_steps=total, pct_start=0.2, div_factor=10.0, final_div_factor=50.0
            ),
        ),
        (
            {"name": "constant", "warmup": 5},
            lambda o: S.LinearLR(o, start_factor=1 / 6, total_iters=5),
        ),
        (
            {"name": "cosine", "warmup": 8},
            lambda o: S.SequentialLR(
                o, [S.LinearLR(o, start_factor=1 / 9, total_iters=8), S.CosineAnnealingLR(o, total - 8)], [8]
            ),
        ),
    ]
    rows = []
    for setting, make in cases:
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        schedule = make(optimizer)
        rates = []
        for _ in range(total):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        rows.append({"schedule": setting, "base": 0.1, "total": total, "rates": rates})
    return rows


if __name__ == "__main__":
    write("losses.json", losses())
    write("optimizers.json", optimizers())
    write("schedules.json", schedules())
