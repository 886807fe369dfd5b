# Runs an ONNX model over samples with onnxruntime: model, samples (npy), batch, outputs (npy, written).
import sys

import numpy
import onnxruntime

model, samples, batch, outputs = sys.argv[1:]
batch = int(batch)
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
taken = session.get_inputs()[0]
x = numpy.load(samples, mmap_mode="r")
if taken.type == "tensor(int64)":
    x = x.astype(numpy.int64)
parts = [session.run(None, {taken.name: x[at : at + batch]})[0] for at in range(0, len(x), batch)]
numpy.save(outputs, numpy.concatenate(parts).astype(numpy.float32))
print(onnxruntime.__version__)
