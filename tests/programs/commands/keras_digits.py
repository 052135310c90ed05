"""Digits by Keras on several workers, each of which finds the others by TF_CONFIG: python keras_digits.py"""
import argparse
import hashlib
import os

import tensorflow as tf
import tf_keras as keras

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--backup_dir", default="backup")
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7)
tf.config.experimental.enable_op_determinism()

images = tf.random.stateless_normal((2048, 12, 12, 1), seed=(1, 2))
labels = tf.argmax(tf.reshape(tf.nn.avg_pool2d(images, 6, 6, "VALID"), (-1, 4)), axis=1)


def batches(x, y):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(args.batch_size).with_options(options)


with strategy.scope():
    model = keras.Sequential([
        keras.layers.Conv2D(16, 3, activation="relu", input_shape=(12, 12, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(4),
    ])
    model.compile(
        optimizer=keras.optimizers.Adam(args.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

model.fit(
    batches(images[:1792], labels[:1792]),
    validation_data=batches(images[1792:], labels[1792:]),
    epochs=args.epochs,
    callbacks=[keras.callbacks.BackupAndRestore(os.path.join(args.backup_dir, "backup"))],
    verbose=2,
)
weights = b"".join(each.tobytes() for each in model.get_weights())
print(f"final weights: {hashlib.sha256(weights).hexdigest()}", flush=True)
