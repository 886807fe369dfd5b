# Times an ONNX model with onnxruntime on zeros: model, batch, runs, threads. Prints the version and the times in ms.
import sys
import time

import numpy
import onnxruntime

model, batch, runs, threads = sys.argv[1], *map(int, sys.argv[2:])
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
kinds = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}
inputs = {}
for taken in session.get_inputs():
    first, *rest = taken.shape
    shape = [first if isinstance(first, int) else batch, *rest]
    inputs[taken.name] = numpy.zeros(shape, kinds[taken.type])
times = []
begin = time.perf_counter()
for run in range(runs + 2):
    if times and time.perf_counter() - begin > 5:
        break
    before = time.perf_counter()
    session.run(None, inputs)
    if run >= 2:
        times.append((time.perf_counter() - before) * 1e3)
print(onnxruntime.__version__, *times)
