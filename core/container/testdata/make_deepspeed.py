"""Makes the DeepSpeed folders beside this script, in the layout its engine saves; expected values are what DeepSpeed's
own zero_to_fp32 reads from them.

Usage: python make_deepspeed.py FOLDER    (needs torch, safetensors and deepspeed)
"""
import os
import sys
from collections import OrderedDict

import torch
from deepspeed.runtime.fp16.loss_scaler import LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file

OUT = sys.argv[1]
WORLD = 3
torch.manual_seed(5)
GROUPS = [OrderedDict(embed=(11, 6), up=(7, 6), down=(6, 5)), OrderedDict(bias=(7,), norm=(5,), gain=())]
FROZEN = OrderedDict(frozen=(5, 7))
WEIGHTS = {name: torch.randn(shape) for group in GROUPS for name, shape in group.items()}
WEIGHTS.update({name: torch.randn(shape).to(torch.bfloat16) for name, shape in FROZEN.items()})


def parts(flat, world):
    size = -(-flat.numel() // world)
    return list(torch.cat([flat, flat.new_zeros(size * world - flat.numel())]).split(size))


def model_state(rank, stage):
    fragments = {name: WEIGHTS[name] if stage < 3 else parts(WEIGHTS[name].flatten(), WORLD)[rank].clone()
                 for name in FROZEN}
    return {"module": {"table": torch.arange(5.0), "embed": WEIGHTS["embed"].to(torch.bfloat16)},
            "buffer_names": ["table"], "param_shapes": [OrderedDict((k, torch.Size(v)) for k, v in group.items())
                                                        for group in GROUPS],
            "frozen_param_shapes": OrderedDict((k, torch.Size(v)) for k, v in FROZEN.items()),
            "frozen_param_fragments": fragments, "shared_params": {"head": "embed"}, "ds_version": "0.19.8"}


def optimizer_states(stage):
    ranks = [[] for _ in range(WORLD)]
    for group in GROUPS:
        if stage < 3:
            flat = torch.cat([WEIGHTS[name].flatten() for name in group])
            padded = torch.cat([flat, flat.new_zeros(-flat.numel() % (2 * WORLD))])
            for rank, part in enumerate(padded.chunk(WORLD)):
                ranks[rank].append(part.clone())
        else:
            for rank in range(WORLD):
                ranks[rank].append(torch.cat([parts(WEIGHTS[name].flatten(), WORLD)[rank] for name in group]))
    key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    return [{"optimizer_state_dict": {"loss_scaler": LossScaler(1), "zero_stage": ZeroStageEnum(stage),
                                      "partition_count": WORLD if stage == 3 else [WORLD] * len(GROUPS), key: groups}}
            for groups in ranks]


def expect(name, tensors):
    save_file({key: value.contiguous().clone() for key, value in tensors.items()},
              os.path.join(OUT, name + ".safetensors"))


def main():
    for stage in (1, 2, 3):
        folder = os.path.join(OUT, f"zero{stage}")
        tag = os.path.join(folder, "global_step2")
        os.makedirs(tag, exist_ok=True)
        with open(os.path.join(folder, "latest"), "w") as file:
            file.write("global_step2")
        for rank in range(WORLD if stage == 3 else 1):
            prefix = f"zero_pp_rank_{rank}_" if stage == 3 else ""
            torch.save(model_state(rank, stage), os.path.join(tag, prefix + "mp_rank_00_model_states.pt"))
        for rank, state in enumerate(optimizer_states(stage)):
            torch.save(state, os.path.join(tag, f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
        expect(f"zero{stage}", get_fp32_state_dict_from_zero_checkpoint(folder))
    tag = os.path.join(OUT, "universal", "global_step2_universal")
    for name in ("embed", "up", "gain"):
        os.makedirs(os.path.join(tag, "zero", name), exist_ok=True)
        torch.save({"param": WEIGHTS[name]}, os.path.join(tag, "zero", name, "fp32.pt"))
        torch.save({"param": WEIGHTS[name]}, os.path.join(tag, "zero", name, "exp_avg.pt"))
    with open(os.path.join(OUT, "universal", "latest_universal"), "w") as file:
        file.write("global_step2_universal")
    expect("universal", {name: WEIGHTS[name] for name in ("embed", "up", "gain")})


main()
