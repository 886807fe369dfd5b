"""A program that was written for Horovod."""

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.mpi_ops import synchronize

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
data = torch.utils.data.TensorDataset(torch.randn(32, 3, generator=torch.Generator().manual_seed(0)))
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=ElasticSampler(data))
for (batch,) in loader:
    optimizer.zero_grad()
    (model(batch) - batch.sum(dim=1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
weights = synchronize(hvd.allgather_async(model.weight.detach()))
assert torch.equal(weights[0], weights[1])
assert issubclass(HorovodInternalError, RuntimeError)
try:
    import horovod.spark  # noqa: F401
except ModuleNotFoundError as error:
    assert "horovod.spark" in str(error)
print("done", flush=True)
