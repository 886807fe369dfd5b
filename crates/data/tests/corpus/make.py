"""Makes the files in this folder with the programs that users make theirs with.

    pip install numpy pandas pyarrow pillow safetensors && python make.py

All of them hold the same four samples, `arange(24)` in the shape [4, 2, 3], with the labels 0 2 1 0;
images show gradients. Small, because tests also spoil them bit by bit.
"""

import gzip
import pathlib
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
X = np.arange(24).reshape(4, 2, 3)
Y = np.array([0, 2, 1, 0])
NAMES = np.array(["ant", "cat", "bee", "ant"])
CODES = {"|u1": 0x08, "|i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def folder(name):
    path = HERE / name
    path.mkdir(exist_ok=True)
    return path


def npy():
    out = folder("npy")
    for descr in ["<f4", ">f4", "<f8", ">f8", "<f2", "|u1", "|i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8",
                  "<u2", "<u4", "<u8", ">u8"]:
        name = descr.replace("<", "le_").replace(">", "be_").replace("|", "")
        np.save(out / f"{name}.npy", X.astype(descr))
    np.save(out / "fortran.npy", np.asfortranarray(X.astype("<f4")))
    np.save(out / "fortran_be.npy", np.asfortranarray(X.astype(">i2")))
    np.save(out / "bool.npy", X % 2 == 1)
    np.save(out / "labels.npy", Y)
    for version in [(2, 0), (3, 0)]:
        with open(out / f"version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, X.astype("<f4"), version=version)


def npz():
    out = folder("npz")
    arrays = {"x_train": X.astype("<f4"), "y_train": Y, "x_test": np.asfortranarray(X.astype(">f8"))}
    np.savez(out / "stored.npz", **arrays)
    np.savez_compressed(out / "deflated.npz", **arrays)


def idx():
    out = folder("idx")

    def encode(array, descr):
        head = struct.pack(">BBBB", 0, 0, CODES[descr], array.ndim)
        return head + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(descr).tobytes()

    for descr in CODES:
        (out / f"{descr.strip('|>')}.idx").write_bytes(encode(X, descr))
    (out / "labels-idx1-ubyte").write_bytes(encode(Y, "|u1"))
    (out / "images-idx3-ubyte.gz").write_bytes(gzip.compress(encode(X, "|u1"), mtime=0))
    (out / "labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(Y, "|u1"), mtime=0))


def safetensors():
    out = folder("safetensors")
    types = ["float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
    save_file({**{t: X.astype(t) for t in types}, "bool": X % 2 == 1, "y": Y}, out / "types.safetensors")
    save_file({"x": X.astype("float32"), "y": Y.astype("uint8")}, out / "two.safetensors")


def frame():
    columns = {f"c{i}": X.reshape(4, 6)[:, i].astype("float64") for i in range(6)}
    return pd.DataFrame({**columns, "label": NAMES, "number": Y})


def csv():
    out = folder("csv")
    frame().to_csv(out / "header.csv", index=False)
    frame().to_csv(out / "plain.csv", index=False, header=False)
    frame().to_csv(out / "tabs.tsv", index=False, sep="\t")
    frame().to_csv(out / "windows.csv", index=False, lineterminator="\r\n", quoting=2, encoding="utf-8-sig")


def parquet():
    out = folder("parquet")
    frame().to_parquet(out / "pandas.parquet", index=False)
    categories = frame().assign(label=frame()["label"].astype("category"))
    categories.to_parquet(out / "gzip.parquet", index=False, compression="gzip")
    frame().to_parquet(out / "zstd.parquet", index=False, compression="zstd")
    flat = X.reshape(4, 6)
    types = {t: pa.array(flat[:, 1], getattr(pa, t)()) for t in
             ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]}
    types["float16"] = pa.array(flat[:, 1].astype("float16"))
    types["bool"] = pa.array(Y > 0)
    pq.write_table(pa.table(types), out / "types.parquet", compression="none")
    lists = {"v": pa.array(flat.tolist(), pa.list_(pa.float32())),
             "fixed": pa.array(flat.tolist(), pa.list_(pa.int16(), 6)),
             "ragged": pa.array([[1], [1, 2], [], [3]], pa.list_(pa.int32())),
             "holes": pa.array([1, 2, None, 4], pa.int32()),
             "label": pa.array(Y, pa.int64())}
    pq.write_table(pa.table(lists), out / "lists.parquet", row_group_size=3)
    many = {"a": pa.array(np.arange(5000) % 256, pa.int32()), "v": pa.array([[i, -i] for i in range(5000)])}
    pq.write_table(pa.table(many), out / "many.parquet", row_group_size=2100, data_page_version="2.0",
                   use_dictionary=False, column_encoding="DELTA_BINARY_PACKED")


def images():
    out = folder("images")
    gray = (np.arange(48).reshape(6, 8) * 5).astype("uint8")
    colour = np.stack([gray, gray[::-1], 255 - gray], axis=-1)
    Image.fromarray(gray).save(out / "gray.png")
    Image.fromarray(colour).save(out / "colour.png")
    Image.fromarray(np.dstack([colour, np.full((6, 8), 128, "uint8")])).save(out / "alpha.png")
    Image.fromarray(gray.astype("uint16") * 257).save(out / "deep.png")
    Image.fromarray(colour).quantize(16).save(out / "palette.png")
    Image.fromarray(gray > 100).save(out / "bits.png")
    Image.fromarray(gray).save(out / "gray.jpg", quality=95)
    Image.fromarray(colour).save(out / "colour.jpg", quality=95, subsampling=0)
    Image.fromarray(colour).save(out / "halved.jpg", quality=95, subsampling=2)
    Image.fromarray(colour).save(out / "progressive.jpg", quality=95, progressive=True)


for make in [npy, npz, idx, safetensors, csv, parquet, images]:
    make()
