"""Torch modules: parity with torch, weights, losses, datasets and loaders."""

import copy
import pathlib

import numpy as np
import pytest

import phalanx

torch = pytest.importorskip("torch")
nn = torch.nn


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        # Without a bias: before BatchNorm its gradient is nothing but rounding, of which Adam makes steps.
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 3 * 3, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        return self.fc(torch.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.layer(self.project(x)).mean(1))


SHAPES = {Convolutional: (1, 8, 8), Recurrent: (6, 8), Transformer: (6, 8)}


def made(kind, samples=160):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    return kind(), rng.normal(size=(samples, *SHAPES[kind])).astype("float32"), rng.integers(0, 10, samples)


def by_hand(module, x, y, steps, batch, optimizer):
    module.train()
    losses = []
    for step in range(steps):
        begin = step * batch % len(x)
        xb, yb = torch.from_numpy(x[begin : begin + batch]), torch.from_numpy(y[begin : begin + batch])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(xb), yb)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", SHAPES)
def test_losses_are_those_of_torch_over_50_steps(kind):
    module, x, y = made(kind)
    reference = copy.deepcopy(module)
    wanted = by_hand(reference, x, y, 50, 16, torch.optim.Adam(reference.parameters(), lr=1e-3))
    run = phalanx.fit(module, (x, y), steps=50, batch=16, lr=1e-3, shuffle=False)
    np.testing.assert_allclose(run.metrics["loss"], wanted, atol=1e-4)
    reference.eval(), module.eval()
    with torch.no_grad():
        mine, theirs = module(torch.from_numpy(x)), reference(torch.from_numpy(x))
    torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(run.predict(x), mine.numpy(), atol=1e-4)


def test_the_same_module_comes_back_with_the_weights_of_the_run():
    module, x, y = made(Convolutional)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run = phalanx.fit(module, (x, y), epochs=2, batch=16)
    assert run.model is module and module.training
    trained = run.state_dict()
    assert set(module.state_dict()) == set(trained) | {"norm.num_batches_tracked"}
    for name, value in module.state_dict().items():
        if name in trained:
            np.testing.assert_array_equal(value.numpy(), trained[name])
            assert not torch.equal(value, before[name]), name
    assert int(module.norm.num_batches_tracked) == run.steps


def test_exporting_leaves_the_module_and_the_generator_alone():
    module, x, _ = made(Convolutional)
    module.eval()
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    phalanx.plan(module, [phalanx.Machine("a", 1 << 30, 10.0)], example=x[:2], stages=1)
    assert not module.training and torch.equal(torch.get_rng_state(), state)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_loss_over_tensors_has_the_gradient_of_autograd():
    module, x, y = made(Convolutional)
    named = copy.deepcopy(module)

    def loss(output, target):
        assert target.dtype == torch.int64
        return nn.functional.cross_entropy(output, target)

    mine = phalanx.fit(module, (x, y), loss=loss, steps=10, batch=16)
    other = phalanx.fit(named, (x, y), loss="cross_entropy", steps=10, batch=16)
    np.testing.assert_allclose(mine.metrics["loss"], other.metrics["loss"], atol=1e-5)
    assert phalanx.fit(module, (x, y), loss=nn.CrossEntropyLoss(label_smoothing=0.1), steps=2).steps == 2


@pytest.mark.parametrize("loss", [lambda o, t: 1.0, lambda o, t: o, lambda o, t: torch.zeros(())])
def test_losses_without_a_gradient_are_told(loss):
    module, x, y = made(Convolutional, 8)
    with pytest.raises(phalanx.InputError, match="loss"):
        phalanx.fit(module, (x, y), loss=loss)


def test_tensors_datasets_and_loaders_are_data():
    module, x, y = made(Recurrent, 64)
    tensors = (torch.from_numpy(x), torch.from_numpy(y))
    pairs = torch.utils.data.TensorDataset(*tensors)
    items = [(tensors[0][i], int(y[i])) for i in range(64)]
    hashes = set()
    for train in ((x, y), tensors, pairs, items, torch.utils.data.DataLoader(pairs, batch_size=16, shuffle=True)):
        hashes.add(phalanx.fit(copy.deepcopy(module), train, epochs=2, batch=16).params_hash)
    assert len(hashes) == 1
    in_order = torch.utils.data.DataLoader(pairs, batch_size=24, drop_last=True)
    run = phalanx.fit(copy.deepcopy(module), in_order, epochs=2)
    assert run.steps == 4
    same = phalanx.fit(copy.deepcopy(module), (x[:48], y[:48]), batch=24, epochs=2, shuffle=False)
    assert run.params_hash == same.params_hash


def test_bfloat16_and_strided_tensors_are_converted():
    module, x, y = made(Recurrent, 16)
    strided = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 2, 1))).transpose(1, 2)
    assert phalanx.fit(copy.deepcopy(module), (strided, y)).params_hash == phalanx.fit(module, (x, y)).params_hash
    assert phalanx.fit(module, (torch.from_numpy(x).bfloat16(), torch.from_numpy(y))).steps == 1


def test_modules_that_cannot_be_exported_are_told():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x @ x.transpose(1, 2))

    x, y = np.zeros((8, 3, 3), "f4"), np.zeros(8, "i8")
    with pytest.raises(phalanx.InputError, match="eigvals|eigh") as caught:
        phalanx.fit(Odd(), (x, y))
    assert isinstance(caught.value, phalanx.ModelError)


class Products(nn.Module):
    def forward(self, x):
        return torch.cumprod(x, 1)


class Sorting(nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=1)[0]


@pytest.mark.parametrize(
    ("part", "operator", "text"),
    [(Products, "aten::cumprod", "torch.cumprod(x, 1)"), (Sorting, "TopK", "torch.sort(x, dim=1)")],
)
def test_an_operator_that_is_not_supported_is_named_with_its_line(part, operator, text, capfd):
    module = nn.Sequential(nn.Linear(3, 3), part())
    x, y = np.zeros((8, 3), "f4"), np.zeros(8, "i8")
    with pytest.raises(phalanx.InputError) as caught:
        phalanx.fit(module, (x, y))
    lines = pathlib.Path(__file__).read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if f"return {text}" in line)
    told = str(caught.value)
    assert operator in told and f"{__file__}:{line}" in told, told
    assert caught.value.hint and "rewrite" in caught.value.hint
    # The first fails in torch's exporter and names the path of the module; for the second it is in the operator's name.
    assert "`1`" in told or "`/1/TopK`" in told, told
    assert capfd.readouterr().out == "", "the exporter's graphs are not printed"


def test_a_run_gives_its_weights_to_a_module(tmp_path):
    module, x, y = made(Convolutional, 32)
    run = phalanx.fit(module, (x, y), epochs=1, batch=16, run_dir=tmp_path / "run")
    assert int(module.norm.num_batches_tracked) == 2
    longer = run.resume(epochs=3)
    assert longer.model is module and int(module.norm.num_batches_tracked) == 6
    fresh = Convolutional()
    opened = phalanx.Run.open(tmp_path / "run", model=fresh)
    assert opened.model is fresh
    for name, value in module.state_dict().items():
        assert torch.equal(value, fresh.state_dict()[name]), name


def test_local_nodes_train_a_module():
    module, x, y = made(Convolutional, 32)
    run = phalanx.fit(module, (x, y), epochs=1, batch=16, local=2, settings={"sync.batch_norm": "sync"})
    np.testing.assert_array_equal(module.fc.weight.detach().numpy(), run.state_dict()["fc.weight"])


class Partly(nn.Module):
    """With a frozen layer, a buffer, tied weights and a parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.register_buffer("shift", torch.linspace(-1, 1, 8))
        self.unused = nn.Parameter(torch.ones(3))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.relu(self.frozen(torch.tanh(self.second(torch.tanh(self.first(x)))) + self.shift)))


@pytest.mark.parametrize("how", ["here", "directory", "local"])
def test_only_what_torch_would_train_is_trained(how, tmp_path):
    torch.manual_seed(1)
    module, rng = Partly(), np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype("float32"), rng.integers(0, 3, 64)
    reference, before = copy.deepcopy(module), copy.deepcopy(module.state_dict())
    wanted = by_hand(reference, x, y, 8, 16, torch.optim.Adam(reference.parameters(), lr=1e-2))
    more = {"here": {}, "directory": {"run_dir": tmp_path / "run"}, "local": {"local": 2}}[how]
    run = phalanx.fit(module, (x, y), steps=8, batch=16, lr=1e-2, shuffle=False, **more)
    np.testing.assert_allclose(run.metrics["loss"], wanted, atol=1e-4)
    assert module.second.weight is module.first.weight
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name], atol=1e-4, rtol=1e-4)
        still = name.startswith("frozen") or name in ("shift", "unused")
        assert torch.equal(value, before[name]) == still, name


def test_a_loader_with_a_sampler_gives_only_what_it_samples():
    module, x, y = made(Recurrent, 64)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    sampler = torch.utils.data.SubsetRandomSampler(range(32))
    run = phalanx.fit(module, torch.utils.data.DataLoader(pairs, batch_size=8, sampler=sampler), epochs=1)
    assert run.steps == 4


def test_dropout_acts_while_training_only():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype("float32"), rng.integers(0, 3, 64)
    run = phalanx.fit(module, (x, y), optimizer="sgd", lr=1e-9, batch=64, steps=4)
    assert len(set(run.metrics["loss"].tolist())) == 4
    module.eval()
    with torch.no_grad():
        np.testing.assert_allclose(run.predict(x), module(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_weights_of_another_module_are_refused(tmp_path):
    module, x, y = made(Recurrent, 32)
    phalanx.fit(module, (x, y), run_dir=tmp_path / "run")
    with pytest.raises(phalanx.ModelError, match="has no `fc.bias`|has the shape"):
        phalanx.Run.open(tmp_path / "run", model=nn.Linear(3, 3))


def test_a_run_with_frozen_layers_is_opened_again(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    for parameter in module[0].parameters():
        parameter.requires_grad = False
    before = module[0].weight.clone()
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = np.arange(64) % 3
    folder = tmp_path / "run"
    run = phalanx.fit(module, train=(x, y), loss="cross_entropy", epochs=2, progress=False, run_dir=folder)
    assert torch.equal(module[0].weight, before)
    np.testing.assert_array_equal(phalanx.Run.open(folder).predict(x), run.predict(x))
