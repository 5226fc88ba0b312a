"""Writes the cases of formats that have a CPU writer or reader but no whole tiny model: one or two tensors each.

    python formats.py OUT          needs torch, safetensors, bitsandbytes, compressed-tensors, nvidia-modelopt, torchao, gguf

Inputs come from the field's own writers where they run on a CPU; the expected values always from its own reader, in FP32
and rounded once to BF16. What is laid out by hand says so in its case.json.
"""
import hashlib
import json
import pathlib
import sys
from importlib.metadata import version

import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(sys.argv[1])
PT = {"format": "pt"}


def random(shape, seed, std=0.05):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * std


def write(name, format_, reader, producer, tensors, expected, config=None, passthrough=(), rename=None, metadata=None,
          about="", files=None, extra=None):
    folder = OUT / name
    (folder / "input").mkdir(parents=True, exist_ok=True)
    expected = {k: v.contiguous() for k, v in expected.items()}
    if tensors is not None:
        tensors = {k: v.contiguous() for k, v in tensors.items()}
        save_file(tensors, folder / "input" / "model.safetensors", metadata={**PT, **(metadata or {})})
    for file, content in (files or {}).items():
        path = folder / "input" / file
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(json.dumps(content, indent=1))
    if config is not None:
        (folder / "input" / "config.json").write_text(
            json.dumps({"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": config}, indent=1))
    save_file(expected, folder / "expected.safetensors", metadata=PT)
    kept = set(expected) | set(passthrough)
    case = {"name": name, "format": format_, "about": about, "producer": producer, "reader": reader, "input": "input",
            "expected": "expected.safetensors", "compare": {"mode": "bit-exact"}, "passthrough": sorted(passthrough),
            "dropped": sorted(set(tensors or {}) - kept)}
    if rename:
        case["rename"] = rename
    if config is not None:
        case["config_must_lose"] = ["quantization_config"]
    case.update(extra or {})
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def bitsandbytes_cases():
    import bitsandbytes as bnb
    from bitsandbytes.backends.default import ops
    tensors, expected = {}, {}
    for i, (kind, block, nested, dtype) in enumerate([("fp4", 64, False, torch.float16), ("nf4", 128, False, torch.float32),
                                                      ("fp4", 64, True, torch.bfloat16)]):
        name = f"model.layers.{i}.mlp.up_proj.weight"
        weight = random((37, 50), 10 + i).to(dtype)  # 1850 values: the last block is short
        codes, state = bnb.functional.quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=kind)
        tensors[name] = codes
        for key, value in state.as_dict(packed=True).items():
            tensors[f"{name}.{key}"] = value
        absmax = state.absmax
        if nested:
            absmax = ops._dequantize_blockwise_compute(absmax.reshape(-1), state.state2.absmax, state.state2.code,
                                                       state.state2.blocksize, torch.float32) + state.offset
        values = ops._dequantize_4bit_compute(codes.reshape(-1), absmax.float(), state.code, block, weight.shape,
                                              torch.float32)
        expected[name] = values.to(torch.bfloat16)
    weight = random((24, 40), 20).half()
    codes, scb, _ = bnb.functional.int8_vectorwise_quant(weight)
    name = "model.layers.0.self_attn.q_proj"
    tensors |= {f"{name}.weight": codes, f"{name}.SCB": scb, f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8)}
    expected[f"{name}.weight"] = torch.ops.bitsandbytes.int8_vectorwise_dequant.default(codes, scb).to(torch.bfloat16)
    tensors["model.norm.weight"] = random((40,), 21).to(torch.bfloat16)
    write("bnb-fp4-int8-mixed", "bitsandbytes FP4, NF4 without and FP4 with nested absmax, INT8 rows",
          f"bitsandbytes {version('bitsandbytes')}, portable backend", f"bitsandbytes {version('bitsandbytes')}", tensors,
          expected, {"quant_method": "bitsandbytes", "load_in_4bit": True}, ["model.norm.weight"])


def compressed_tensors_case():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    groups = {
        "w4": ("pack-quantized", dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32), "q_proj"),
        "w8": ("pack-quantized", dict(num_bits=8, type="int", symmetric=False, strategy="channel"), "k_proj"),
        "w3": ("pack-quantized", dict(num_bits=3, type="int", symmetric=True, strategy="channel"), "v_proj"),
        "int8": ("int-quantized", dict(num_bits=8, type="int", symmetric=True, strategy="channel"), "o_proj"),
        "fp8": ("float-quantized", dict(num_bits=8, type="float", symmetric=True, strategy="tensor"), "up_proj"),
        "mxfp8": ("mxfp8-quantized", dict(num_bits=8, type="float", symmetric=True, strategy="group", group_size=32,
                                          scale_dtype="torch.uint8"), "down_proj"),
    }
    tensors, expected, config = {}, {}, {}
    for i, (group, (format_, args, module)) in enumerate(groups.items()):
        weight = random((40, 96), 30 + i).to(torch.bfloat16)
        scheme = QuantizationScheme(targets=[f"re:.*{module}$"], weights=QuantizationArgs(**args), format=format_)
        rows = weight.float().reshape(40, -1, args.get("group_size") or 96)
        top = {"int": 2 ** (args["num_bits"] - 1) - 0.5, "float": 448.0}[args["type"]]
        scale = rows.abs().amax(-1) / top
        state = {"weight": weight}
        if args["strategy"] == "tensor":
            scale = scale.max().reshape(1)
        if group == "mxfp8":
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        if not args["symmetric"]:
            low, high = rows.amin(-1), rows.amax(-1)
            scale = (high - low) / 255
            state["weight_zero_point"] = torch.clamp(torch.round(-128 - low / scale), -128, 127).to(torch.int8)
        state["weight_scale"] = scale.to(torch.bfloat16)
        compressor = BaseCompressor.get_value_from_registry(format_)
        stored = compressor.compress(state, scheme)
        name = f"model.layers.0.self_attn.{module}" if module.endswith(("q_proj", "k_proj", "v_proj", "o_proj")) \
            else f"model.layers.0.mlp.{module}"
        for key, value in stored.items():
            tensors[f"{name}.{key}"] = value.contiguous()
        expected[f"{name}.weight"] = compressor.decompress(stored, scheme)["weight"].to(torch.bfloat16).contiguous()
        config[group] = {"targets": scheme.targets, "format": format_, "weights": json.loads(scheme.weights.model_dump_json())}
    write("ct-mixed-groups", "compressed-tensors mixed-precision: INT4 group, INT8 channel with zero points packed, INT3, "
          "INT8 plain, FP8 tensor, MXFP8", f"compressed-tensors {version('compressed-tensors')}, decompress of each format",
          f"compressed-tensors {version('compressed-tensors')}, compress of each format", tensors, expected,
          {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": config, "ignore": []})


def compressed_tensors_reordered_case():
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
    codes = torch.randint(-8, 8, (24, 64), generator=torch.Generator().manual_seed(50), dtype=torch.int8)
    scale = (random((24, 4), 51).abs() + 0.01).to(torch.bfloat16)
    group = torch.randperm(64, generator=torch.Generator().manual_seed(52)).to(torch.int32) // 16
    packed = pack_to_int32(codes, 4)
    name = "model.layers.0.mlp.up_proj.weight"
    values = unpack_from_int32(packed, 4, torch.Size((24, 64))).to(torch.bfloat16) * scale[:, group.long()]
    write("ct-w4-reordered-columns", "compressed-tensors pack-quantized with weight_g_idx (actorder group)",
          f"unpack_from_int32 of compressed-tensors {version('compressed-tensors')}, times the scale of g_idx[column]",
          "packed by compressed-tensors, g_idx by hand: current versions no longer write it",
          {f"{name}_packed": packed, f"{name}_scale": scale, f"{name}_g_idx": group,
           f"{name}_shape": torch.tensor([24, 64])}, {name: values},
          {"quant_method": "compressed-tensors", "format": "pack-quantized",
           "config_groups": {"g": {"targets": ["Linear"], "weights": {
               "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16, "actorder": "group"}}}})


def modelopt_cases():
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP8QTensor, NVFP4QTensor
    made = f"nvidia-modelopt {version('nvidia-modelopt')}"
    tensors, expected = {}, {}

    def nvfp4(name, seed):
        weight = random((32, 64), seed).to(torch.bfloat16)
        quantized, scale, scale_2 = NVFP4QTensor.quantize(weight, 16)
        tensors.update({f"{name}.weight": quantized._quantized_data, f"{name}.weight_scale": scale,
                        f"{name}.weight_scale_2": scale_2.float(), f"{name}.input_scale": torch.tensor(0.01)})
        values = quantized.dequantize(torch.float32, scale=scale, double_scale=scale_2.float(), block_sizes={-1: 16})
        packed = quantized._quantized_data
        codes = torch.stack([packed & 15, packed >> 4], -1).reshape(values.shape)
        values[codes == 8] = -0.0  # its table gives +0 for the code of -0
        return values

    awq, svd = "model.layers.0.mlp.up_proj", "model.layers.0.mlp.gate_proj"
    values = nvfp4(awq, 60)
    before = (random((64,), 61).abs() + 0.5).to(torch.bfloat16)
    tensors[f"{awq}.pre_quant_scale"] = before
    expected[f"{awq}.weight"] = (values * before.float()).to(torch.bfloat16)
    values = nvfp4(svd, 62)
    before, a, b = ((random((64,), 63).abs() + 0.5).to(torch.bfloat16), random((4, 64), 64).to(torch.bfloat16),
                    random((32, 4), 65).to(torch.bfloat16))
    tensors |= {f"{svd}.pre_quant_scale": before, f"{svd}.svdquant_lora_a": a, f"{svd}.svdquant_lora_b": b}
    low_rank = torch.zeros(32, 64)
    for r in range(4):  # in the order of the rank, as a plain loop sums
        low_rank += b[:, r : r + 1].float() * a[r].float()
    expected[f"{svd}.weight"] = ((values + low_rank) * before.float()).to(torch.bfloat16)
    write("mo-nvfp4-awq-svdquant", "ModelOpt NVFP4 with pre_quant_scale, and with SVDQuant's low-rank part",
          made + ", dequantize; then (W + B A) times pre_quant_scale, as its layers compute",
          made + " for the weights, factors by hand under the names of its export", tensors, expected,
          {"quant_method": "modelopt", "quant_algo": "NVFP4_SVD"})

    name = "model.layers.0.mlp.down_proj"
    weight = random((160, 136), 70).to(torch.bfloat16)
    quantized, scale = FP8QTensor.quantize(weight.float(), block_sizes={-1: 128, -2: 128})
    values = quantized.dequantize(torch.float32, scale=scale, block_sizes={-1: 128, -2: 128})
    mx = random((16, 96), 71).to(torch.bfloat16)
    mx_quantized, mx_scale = MXFP8QTensor.quantize(mx)
    mx_name = "model.layers.0.mlp.up_proj"
    write("mo-fp8-block-mxfp8", "ModelOpt block FP8 with a scale of rank 4, and MXFP8 with U8 exponents",
          made + ", dequantize", made + "; the rank 4 of the block scale as its export reshapes it",
          {f"{name}.weight": quantized._quantized_data, f"{name}.weight_scale": scale.reshape(2, 1, 2, 1),
           f"{mx_name}.weight": mx_quantized._quantized_data, f"{mx_name}.weight_scale": mx_scale},
          {f"{name}.weight": values.to(torch.bfloat16),
           f"{mx_name}.weight": mx_quantized.dequantize(torch.bfloat16, scale=mx_scale)},
          {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})


def torchao_case():
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization.granularity import PerBlock, PerTensor
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor
    state = {"model.layers.0.mlp.up_proj.weight": Float8Tensor.from_hp(random((24, 40), 80).bfloat16(), granularity=PerTensor()),
             "model.layers.0.mlp.down_proj.weight": Float8Tensor.from_hp(random((128, 256), 81).bfloat16(),
                                                                          granularity=PerBlock([128, 128])),
             "model.norm.weight": random((40,), 82).bfloat16()}
    tensors, metadata = flatten_tensor_state_dict(state)
    expected = {}
    for name, tensor in state.items():
        if "norm" not in name:
            scale = tensor.scale
            for dim in range(2):
                scale = scale.repeat_interleave(tensor.shape[dim] // scale.shape[dim], dim=dim)
            expected[name] = (tensor.qdata.float() * scale).to(torch.bfloat16)
    write("torchao-f8-tensor-block", "torchao float8, per tensor and in 128x128 blocks",
          f"torchao {version('torchao')}: qdata times scale in FP32", f"torchao {version('torchao')}", tensors, expected,
          None, ["model.norm.weight"], {n[: -len("weight")] + "_weight_qdata": n for n in expected}, metadata)


def gguf_case():
    import gguf
    from gguf.quants import dequantize
    rng = np.random.default_rng(90)
    rows = rng.integers(0, 256, (3, 4 * 36), dtype=np.uint8)  # four blocks of 64 a row
    scales = rows.reshape(3, 4, 36)[:, :, :4]
    scales &= 0x7F
    scales[scales == 0x7F] = 0x7E
    values = dequantize(rows, gguf.GGMLQuantizationType.NVFP4)
    folder = OUT / "gguf-nvfp4-split" / "input"
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in enumerate(["blk.0.a.weight", "blk.1.a.weight"]):
        writer = gguf.GGUFWriter(folder / f"model-{part + 1:05}-of-00002.gguf", "llama")
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", 2)
        writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])
        writer.add_tensor(name, rows[part:], raw_dtype=gguf.GGMLQuantizationType.NVFP4)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    write("gguf-nvfp4-split", "GGUF NVFP4 in two files", f"gguf {version('gguf')} quants.dequantize",
          f"gguf {version('gguf')} GGUFWriter, codes at random", None,
          {"blk.0.a.weight": torch.from_numpy(values), "blk.1.a.weight": torch.from_numpy(values[1:].copy())},
          extra={"compare": {"mode": "f32-rel", "max": 0.0}})


def comfy_case():
    weight = random((16, 24), 100)
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    tensors, expected = {}, {}
    note = torch.tensor(list(b'{"format": "float8_e4m3fn"}'), dtype=torch.uint8)
    for name, ending in [("blocks.0.a", "scale_weight"), ("blocks.1.a", "weight_scale")]:
        tensors |= {f"{name}.weight": codes.clone(), f"{name}.{ending}": scale.reshape([] if "0" in name else [1]).clone()}
        expected[f"{name}.weight"] = (codes.float() * scale).to(torch.bfloat16)
    tensors |= {"blocks.0.a.scale_input": torch.tensor(0.5), "blocks.1.a.comfy_quant": note,
                "blocks.1.a.input_scale": torch.tensor(0.5), "blocks.0.a.bias": random((16,), 101).half()}
    write("scaled-fp8-comfy-new", "scaled FP8 of diffusion tools: both spellings, comfy_quant notes, header metadata",
          "torch: codes times scale in FP32", "by hand after the public description", tensors, expected, None,
          ["blocks.0.a.bias"], None,
          {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": {"blocks.1.a": {"format": "float8_e4m3fn"}}})})


def gpt_oss_case():
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    gen = torch.Generator().manual_seed(110)
    blocks = torch.randint(0, 256, (2, 8, 2, 16), generator=gen, dtype=torch.uint8)
    scales = torch.randint(115, 125, (2, 8, 2), generator=gen, dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.bfloat16)
    write("gptoss-mxfp4-original", "gpt-oss MXFP4 as first released (mlp1_weight.blocks, .scales)",
          "transformers convert_moe_packed_tensors, transposed back to [experts, outputs, inputs]", "by hand",
          {"block.0.mlp.mlp1_weight.blocks": blocks, "block.0.mlp.mlp1_weight.scales": scales,
           "block.0.mlp.mlp1_bias": random((2, 8), 111).bfloat16()},
          {"block.0.mlp.mlp1_weight": values.transpose(1, 2).contiguous()}, None, ["block.0.mlp.mlp1_bias"],
          {"block.0.mlp.mlp1_weight.blocks": "block.0.mlp.mlp1_weight"})


for make in [bitsandbytes_cases, compressed_tensors_case, compressed_tensors_reordered_case, modelopt_cases, torchao_case,
             gguf_case, comfy_case, gpt_oss_case]:
    try:
        make()
        print(make.__name__, "done")
    except ImportError as error:
        print(make.__name__, "skipped:", error)
