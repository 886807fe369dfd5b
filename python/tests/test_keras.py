"""Keras models: parity with Keras, weights, layers that are not supported."""

import os

import numpy as np
import pytest

import phalanx

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras = pytest.importorskip("tensorflow").keras
layers = keras.layers


def convolutional():
    return keras.Sequential(
        [
            layers.Input((9, 9, 2)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.MaxPooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def functional():
    given = keras.Input((8, 8, 2))
    scaled = layers.Rescaling(0.5)(given)
    left = layers.Conv2D(4, 3, padding="same", use_bias=False)(scaled)
    right = layers.Conv2D(4, 1, activation="tanh")(scaled)
    joined = layers.Concatenate()([layers.Add()([left, right]), left])
    pooled = layers.AveragePooling2D()(layers.LeakyReLU(0.1)(joined))
    both = layers.Concatenate()([layers.GlobalAveragePooling2D()(pooled), layers.GlobalMaxPooling2D()(pooled)])
    return keras.Model(given, layers.Dense(10)(layers.Activation("gelu")(both)))


def dense():
    inner = keras.Sequential([layers.Dense(6, activation="swish"), layers.LayerNormalization()])
    return keras.Sequential([layers.Input((4, 3)), layers.Flatten(), inner, layers.Dense(10)])


SHAPES = {convolutional: (9, 9, 2), functional: (8, 8, 2), dense: (4, 3)}


def made(kind, samples=48):
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    return kind(), rng.normal(size=(samples, *SHAPES[kind])).astype("float32"), rng.integers(0, 10, samples)


def by_keras(model, x, y, steps, batch):
    logits = not isinstance(model, keras.Sequential) or model.layers[-1].activation is keras.activations.linear
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    model.compile(keras.optimizers.SGD(0.05), loss)
    losses = []
    for step in range(steps):
        begin = step * batch % len(x)
        losses.append(model.train_on_batch(x[begin : begin + batch], y[begin : begin + batch]))
    return losses


@pytest.mark.parametrize("kind", SHAPES)
def test_losses_and_weights_are_those_of_keras(kind):
    model, x, y = made(kind)
    reference, _, _ = made(kind)
    for mine, theirs in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_array_equal(mine, theirs)
    wanted = by_keras(reference, x, y, 12, 16)
    run = phalanx.fit(model, (x, y), optimizer="sgd", lr=0.05, steps=12, batch=16, shuffle=False)
    assert run.model is model
    np.testing.assert_allclose(run.metrics["loss"], wanted, atol=1e-4)
    for mine, theirs in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
    outputs = run.predict(x)
    if kind is convolutional:
        # The softmax is part of the loss.
        outputs = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), outputs, atol=1e-4)


def normalized():
    rng = np.random.default_rng(0)
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(3)]
    )
    return model, rng.normal(size=(32, 6)).astype("float32"), rng.integers(0, 3, 32)


def test_statistics_move_and_what_is_frozen_stays():
    model, x, y = normalized()
    model.layers[0].trainable = False
    before = [weight.numpy() for weight in model.weights]
    run = phalanx.fit(model, (x, y), epochs=2, batch=16)
    changed = {w.name.split(":")[0]: not np.array_equal(old, w.numpy()) for old, w in zip(before, model.weights)}
    assert list(changed.values()).count(False) == 2
    first = model.layers[0].name
    assert not changed[f"{first}/kernel"] and not changed[f"{first}/bias"], changed
    np.testing.assert_allclose(run.predict(x), model.predict(x, verbose=0), atol=1e-4)


def test_a_run_gives_its_weights_to_a_model(tmp_path):
    model, x, y = normalized()
    run = phalanx.fit(model, (x, y), epochs=2, batch=16, run_dir=tmp_path / "run")
    longer = run.resume(epochs=3)
    assert longer.model is model
    fresh = keras.models.clone_model(model)
    assert phalanx.Run.open(tmp_path / "run", model=fresh).model is fresh
    np.testing.assert_allclose(fresh.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)


def test_ids_are_embedded():
    model = keras.Sequential([layers.Input((5,)), layers.Embedding(20, 4), layers.Flatten(), layers.Dense(2)])
    ids, y = np.arange(40).reshape(8, 5) % 20, np.arange(8) % 2
    run = phalanx.fit(model, (ids, y), steps=2, batch=8)
    np.testing.assert_allclose(run.predict(ids), model.predict(ids, verbose=0), atol=1e-5)


@pytest.mark.parametrize(
    "layer, words",
    [
        (lambda: layers.LSTM(4), "layer `.*` of type LSTM is not supported"),
        (lambda: layers.Dense(4, activation="exponential"), "activation `exponential`"),
        (lambda: layers.BatchNormalization(axis=1), "another axis"),
    ],
)
def test_layers_that_are_not_supported_are_named(layer, words):
    model = keras.Sequential([layers.Input((5, 6)), layer()])
    with pytest.raises(phalanx.ModelError, match=words):
        phalanx.fit(model, (np.zeros((4, 5, 6), "f4"), np.zeros(4, "i8")))
