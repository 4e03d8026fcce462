"""Minimal training loop in PyTorch: DistributedDataParallel or FSDP2, fused AdamW if available, no clipping, and no loader beyond slicing
a tensor."""

import torch
import torch.distributed as dist
from common import Report, arguments, make_model, tokens

a = arguments()
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = plain = make_model(a).to(device)
if a.kind == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (ranks,))
    for block in model.model.layers if a.config else model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
    if a.compile:
        model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=a.kind != "fsdp2")
checkpoint = a.out / "checkpoint"


def state():
    """State of model and optimizer, in the format of each kind's checkpoints."""
    if a.kind == "fsdp2":
        from torch.distributed.checkpoint.state_dict import get_state_dict

        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    return {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}


def save():
    if a.kind == "fsdp2":
        import torch.distributed.checkpoint as dcp

        dcp.save(state(), checkpoint_id=checkpoint)
    elif rank == 0:
        torch.save(state(), checkpoint)
    dist.barrier()


def load():
    if a.kind == "fsdp2":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        loaded = state()
        dcp.load(loaded, checkpoint_id=checkpoint)
        set_state_dict(
            model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    else:
        loaded = torch.load(checkpoint, weights_only=True)
        plain.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])


report = Report(a, plain)
if a.resume:
    load()
steps = a.more if a.resume else a.steps
data = tokens(a, steps * a.batch * ranks)
for step in range(steps):
    if step == a.warm:
        dist.barrier()
        report.mark("begin")
    at = (step * ranks + rank) * a.batch
    x = data[at : at + a.batch].to(device)
    with torch.autocast(device, torch.bfloat16, enabled=a.bf16):
        loss = model(input_ids=x, labels=x).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
report.mark("end")
if a.save:
    report.mark("save_begin")
    save()
    report.mark("save_end")
report.write(loss=loss.item())
dist.destroy_process_group()
