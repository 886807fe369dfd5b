"""A rank is killed while the other is inside a function of TensorFlow: `elastic_tensorflow.py FOLDER`."""

import os
import pathlib
import signal
import sys

import numpy as np
import tensorflow as tf

import phalanx.tensorflow as hvd

FOLDER = pathlib.Path(sys.argv[1])
hvd.init()
tf.keras.utils.set_random_seed(os.getpid() % 1000)
net = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(0.01)
rows = tf.constant(np.random.default_rng(0).normal(size=(8, 3)).astype("float32"))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(rows) - tf.reduce_sum(rows, axis=1, keepdims=True)) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    return loss


@hvd.elastic.run
def train(state):
    while state.step < 12:
        if state.step == 5 and hvd.rank() == 1 and not (FOLDER / "killed").exists():
            (FOLDER / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.losses.append(float(step()))
        state.step += 1
        state.commit()


state = hvd.elastic.TensorFlowKerasState(net, optimizer, step=0, losses=[])
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)
assert len(state.losses) == 12 and state.losses == sorted(state.losses, reverse=True), state.losses
weights = hvd.allgather(tf.reshape(net.trainable_variables[0], [1, -1])).numpy()
assert len(weights) == 2 and (weights[0] == weights[1]).all()
print("resets", resets, flush=True)
