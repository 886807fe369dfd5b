"""TensorFlow on two ranks, whose losses are those of one with the double batch."""

import numpy as np
import tensorflow as tf

import phalanx.tensorflow as hvd
import phalanx.tensorflow.keras as keras_hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
STEPS, BATCH = 12, 16
rng = np.random.default_rng(0)
x = rng.normal(size=(STEPS, BATCH, 6)).astype("float32")
y = (x.sum(axis=-1) > 0).astype("int64")
PART = slice(RANK * BATCH // SIZE, (RANK + 1) * BATCH // SIZE)


def model(seed):
    tf.keras.utils.set_random_seed(seed)
    layers = [tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(2)]
    return tf.keras.Sequential([tf.keras.layers.Input((6,)), *layers])


def losses(shared):
    """The losses of all steps; shared among the ranks, or with the whole batch."""
    net = model(7 + (RANK if shared else 0))
    optimizer = tf.keras.optimizers.Adam(0.05)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(inputs, labels, first):
        with tf.GradientTape() as tape:
            value = loss(labels, net(inputs, training=True))
        if shared:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        if shared and first:
            hvd.broadcast_variables(net.variables, root_rank=0)
            # A list in Keras 3, and a list that can be called before.
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return value

    if shared:
        hvd.broadcast_variables(net.variables, root_rank=0)
    curve = []
    for number in range(STEPS):
        part = PART if shared else slice(None)
        value = step(tf.constant(x[number, part]), tf.constant(y[number, part]), number == 0)
        curve.append(float(hvd.allreduce(value) if shared else value))
    return curve


alone, together = losses(False), losses(True)
np.testing.assert_allclose(together, alone, rtol=1e-4)
assert together[-1] < together[0] / 2

# The same by Keras.
whole = model(7)
whole.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), tf.keras.losses.SparseCategoricalCrossentropy(True))
expected = whole.fit(x.reshape(-1, 6), y.reshape(-1), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
net = model(7 + RANK)
keras_hvd.broadcast_variables(net.variables, root_rank=0)
optimizer = keras_hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9))
assert isinstance(optimizer, tf.keras.optimizers.SGD)
net.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(True))
callbacks = [
    keras_hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    keras_hvd.callbacks.MetricAverageCallback(),
]
own = (x[:, PART].reshape(-1, 6), y[:, PART].reshape(-1))
got = net.fit(*own, batch_size=BATCH // SIZE, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
np.testing.assert_allclose(got.history["loss"], expected.history["loss"], rtol=1e-4)
for mine, theirs in zip(net.get_weights(), whole.get_weights()):
    np.testing.assert_allclose(mine, theirs, atol=1e-4)

# Two passes before a step are one with a batch of both.
rows = tf.constant(x[0, :4])
first, second = model(3), model(3)
for built in (first, second):
    built.set_weights(model(3).get_weights())
doubled = hvd.DistributedOptimizer(
    tf.keras.optimizers.SGD(0.5), backward_passes_per_step=2, average_aggregated_gradients=True
)
plain = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5), compression=hvd.Compression.fp16)


def applying(net, optimizer):
    @tf.function
    def apply(rows):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(net(rows) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(value, net.trainable_variables), net.trainable_variables))

    return apply


apply_twice, apply_once = applying(first, doubled), applying(second, plain)
before = first.get_weights()
apply_twice(rows[:2])
assert all((a == b).all() for a, b in zip(first.get_weights(), before))
apply_twice(rows[2:])
apply_once(rows)
for mine, theirs in zip(first.get_weights(), second.get_weights()):
    np.testing.assert_allclose(mine, theirs, atol=1e-3)

# The rate grows to that of all ranks.
rates = []


class Note(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        rates.append(float(self.model.optimizer.learning_rate.numpy()))


warm = keras_hvd.callbacks.LearningRateWarmupCallback(0.2, warmup_epochs=2)
later = keras_hvd.callbacks.LearningRateScheduleCallback(0.2, lambda epoch: 0.5, start_epoch=2)
net.fit(*own, batch_size=32, epochs=3, verbose=0, callbacks=[warm, later, Note()])
steps = len(rates) // 3
assert 0.2 / SIZE < rates[0] < rates[steps] < rates[2 * steps - 1] and abs(rates[2 * steps - 1] - 0.2) < 1e-6
assert abs(rates[-1] - 0.1) < 1e-6, rates

# Gradients, types and errors at once and inside functions.
ones = tf.ones([2, 3]) * (RANK + 1)
for kind in (tf.bool, tf.float16, tf.bfloat16, tf.float64, tf.int64, tf.uint8):
    assert hvd.allgather(tf.cast(ones, kind)).dtype == kind
    assert hvd.broadcast(tf.cast(1, kind), 0).shape == []


@tf.function
def through(given):
    with tf.GradientTape() as tape:
        tape.watch(given)
        value = tf.reduce_sum(hvd.allreduce(given, op=hvd.Sum) ** 2) + tf.reduce_sum(hvd.allgather(given))
    return tape.gradient(value, given)


total = SIZE * (SIZE + 1) / 2
np.testing.assert_allclose(through(ones), np.full((2, 3), 2 * total * SIZE + 1))
table = tf.Variable(tf.zeros([4, 2]))
with tf.GradientTape() as tape:
    value = tf.reduce_sum(tf.gather(table, [RANK, 3]))
slices = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(value, table)
assert isinstance(slices, tf.IndexedSlices)
assert tf.convert_to_tensor(slices).numpy()[:, 0].tolist() == [1.0, 1.0, 0.0, 2.0]
try:
    tf.function(lambda: hvd.allreduce(tf.ones(2 + RANK), name="another shape"))()
except tf.errors.UnknownError as error:
    assert "another shape" in str(error)
else:
    raise AssertionError("shapes differ")

# Normalisation over the batches of all ranks, which have different sizes.
sizes = [2 + rank for rank in range(SIZE)]
mine = slice(sum(sizes[:RANK]), sum(sizes[: RANK + 1]))
batch = tf.constant(rng.normal(size=(sum(sizes), 4, 3)).astype("float32"))
weight = tf.constant(rng.normal(size=(sum(sizes), 4, 3)).astype("float32"))
plain_norm, norm = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization(name="norm")


def normalised(layer, rows, factors):
    with tf.GradientTape() as tape:
        tape.watch(rows)
        out = layer(rows, training=True)
        value = tf.reduce_sum(out * factors)
    return out, tape.gradient(value, rows)


expected_out, expected_gradient = normalised(plain_norm, batch, weight)
for function in (normalised, tf.function(normalised)):
    got_out, got_gradient = function(norm, batch[mine], weight[mine])
    np.testing.assert_allclose(got_out, expected_out[mine], atol=1e-5)
    np.testing.assert_allclose(got_gradient, expected_gradient[mine], atol=1e-4)
normalised(plain_norm, batch, weight)
np.testing.assert_allclose(norm.moving_mean, plain_norm.moving_mean, atol=1e-6)
np.testing.assert_allclose(norm.moving_variance, plain_norm.moving_variance, atol=1e-5)

# A state that is committed, changed, restored and synchronised; an error inside a function ends a try.
net = model(RANK)
net.compile(tf.keras.optimizers.Adam(0.01), "mse")
state = hvd.elastic.TensorFlowKerasState(net, batch=RANK, epoch=0)
tries = []


@hvd.elastic.run
def train(state):
    tries.append(state.batch)
    net(ones @ tf.ones([3, 6]))
    if len(tries) == 1:
        state.batch = 5
        state.commit()
        state.batch = 9
        net.trainable_variables[0].assign_add(tf.ones_like(net.trainable_variables[0]))

        def lost(_):
            raise hvd.HorovodInternalError("as if a rank were lost")

        from phalanx.tensorflow._bridge import call

        tf.function(lambda: call(lost, [ones], [ones.dtype], [ones.shape]))()
    return state.batch


assert train(state) == 5 and tries == [0, 5]
weights = hvd.allgather(tf.reshape(net.trainable_variables[0], [1, -1])).numpy()
assert (weights[0] == weights[1]).all() and np.abs(weights).max() < 1
print("done", flush=True)
