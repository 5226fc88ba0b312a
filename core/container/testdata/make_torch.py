"""Makes the torch files beside this script; expected values are what torch itself reads.

Usage: python make_torch.py FOLDER    (needs torch and safetensors; the bytes differ between versions, the values do not)
"""
import os
import pickle
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                   TensorStorageMetadata)

OUT = sys.argv[1]
torch.manual_seed(11)


def expect(name, tensors):
    plain = {}
    for key, value in tensors.items():
        value = value.detach()
        if value.dtype == torch.float4_e2m1fn_x2:
            value = value.view(torch.uint8)  # judged by its bytes
        plain[key] = value.contiguous().clone()
    save_file(plain, os.path.join(OUT, name + ".safetensors"))


def every_dtype():
    tensors = {}
    for dtype in [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64]:
        tensors[str(dtype)[6:]] = torch.randn(3, 5).to(dtype)
    for dtype in [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32,
                  torch.uint64]:
        tensors[str(dtype)[6:]] = torch.randint(0, 100, (2, 3)).to(dtype)
    tensors["bool"] = torch.tensor([True, False, True])
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
                  torch.float8_e8m0fnu]:
        tensors[str(dtype)[6:]] = torch.randint(1, 100, (4, 3), dtype=torch.uint8).view(dtype)
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.zeros(0, 4)
    return tensors


def views():
    base = torch.randn(6, 8)
    long_rows = torch.randn(3, 400)
    return {
        "transposed": base.t(),
        "transposed_large": torch.randn(20, 300).t(),
        "steps": base[::2, 1::3],
        "columns": base[:, 2:5],
        "long_columns": long_rows[:, 100:390],
        "offset": base[4:],
        "expanded": torch.randn(1, 5).expand(4, 5),
        "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "shared": base,
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "fp8_transposed": torch.randn(5, 7).to(torch.float8_e4m3fn).t(),
    }


def grid_checkpoint(folder):
    """A tensor in 2 x 3 uneven chunks over two files, one of them a transposed view, as ranks of a mesh would write it."""
    os.makedirs(folder, exist_ok=True)
    whole = torch.randn(7, 10)
    rows, cols = [(0, 4), (4, 7)], [(0, 3), (3, 7), (7, 10)]
    chunks, places = [], {}
    files = [open(os.path.join(folder, f"__{i}_0.distcp"), "wb") for i in range(2)]
    for i, (r0, r1) in enumerate(rows):
        for k, (c0, c1) in enumerate(cols):
            offset, size = torch.Size([r0, c0]), torch.Size([r1 - r0, c1 - c0])
            piece = whole[r0:r1, c0:c1].clone()
            if k == 1:
                piece = piece.t().contiguous().t()
            file = files[(i + k) % 2]
            begin = file.tell()
            torch.save(piece, file)
            chunks.append(ChunkStorageMetadata(offset, size))
            places[MetadataIndex("w", offset)] = _StorageInfo(os.path.basename(file.name), begin, file.tell() - begin)
    for file in files:
        file.close()
    metadata = Metadata({"w": TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([7, 10]), chunks)},
                        storage_data=places)
    with open(os.path.join(folder, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)
    read = {"w": torch.zeros(7, 10)}
    dcp.load(read, checkpoint_id=folder, no_dist=True)
    assert torch.equal(read["w"], whole)
    return read


def main():
    os.makedirs(OUT, exist_ok=True)
    at = lambda *names: os.path.join(OUT, *names)
    dtypes = every_dtype()
    torch.save({**dtypes, "float4_e2m1fn_x2": torch.randint(0, 255, (2, 6), dtype=torch.uint8).view(
        torch.float4_e2m1fn_x2)}, at("dtypes.pt"))
    expect("dtypes", torch.load(at("dtypes.pt")))
    torch.save(views(), at("views.pt"))
    expect("views", torch.load(at("views.pt")))
    classic = {key: value for key, value in {**dtypes, **views()}.items()
               if not str(value.dtype).startswith(("torch.float8", "torch.uint"))}  # torch cannot read those back
    torch.save(classic, at("legacy.pt"), _use_new_zipfile_serialization=False)
    expect("legacy", torch.load(at("legacy.pt")))
    weights = {"a": {"w": torch.randn(2, 2)}, "b": [torch.randn(3), torch.randn(1)], "c.w": torch.randn(2)}
    torch.save({"epoch": 3, "state_dict": weights, "optimizer": {"state": {0: {"exp_avg": torch.randn(2)}}}},
               at("trainer.ckpt"))
    expect("trainer", {"a.w": weights["a"]["w"], "b.0": weights["b"][0], "b.1": weights["b"][1],
                       "c.w": weights["c.w"]})
    expect("grid", grid_checkpoint(at("grid")))
    dcp.save({"x": torch.randn(3, 4), "nested": {"y": torch.ones(2).to(torch.bfloat16)}, "step": 7,
              "f8": torch.randn(2, 3).to(torch.float8_e4m3fn)}, checkpoint_id=at("plain_dcp"), no_dist=True)
    read = {"x": torch.zeros(3, 4), "nested": {"y": torch.ones(2).to(torch.bfloat16)},
            "f8": torch.zeros(2, 3).to(torch.float8_e4m3fn)}
    dcp.load(read, checkpoint_id=at("plain_dcp"), no_dist=True)
    expect("plain_dcp", {"x": read["x"], "nested.y": read["nested"]["y"], "f8": read["f8"]})


main()
