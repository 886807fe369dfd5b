"""Makes digits.npz next to this file.

    pip install numpy scikit-learn && python make.py
"""

import pathlib

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

images, labels = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.4, random_state=1)


def samples(x):
    return x.astype(np.float32).reshape(-1, 1, 8, 8)


np.savez_compressed(
    pathlib.Path(__file__).with_name("digits.npz"),
    x_train=samples(x_train),
    y_train=y_train.astype(np.int64),
    x_test=samples(x_test),
    y_test=y_test.astype(np.int64),
)
