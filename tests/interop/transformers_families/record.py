"""Records what transformers computes for a tiny random model of each family: the fixtures of families_test.cc.

    python record.py OUTPUT_FOLDER     writes FAMILY/model/, FAMILY/gradients/, FAMILY/expected.json
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

SIZES = dict(vocab_size=97, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1,
             eos_token_id=2, initializer_range=0.15,
             pad_token_id=None)  # a padding row gets no gradient there
FAMILIES = {
    "llama": dict(tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)),
    "mistral": dict(sliding_window=6, tie_word_embeddings=False),
    "qwen2": dict(tie_word_embeddings=False, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)),
    "qwen3": dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "gemma": dict(),
    "gemma2": dict(sliding_window=6, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, final_logit_softcapping=4.0),
    "gemma3_text": dict(sliding_window=6, query_pre_attn_scalar=24,
                        layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
                            sliding_attention=dict(rope_type="default", rope_theta=500.0),
                            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6))),
}

for family, extra in FAMILIES.items():
    folder = os.path.join(sys.argv[1], family)
    torch.manual_seed(1)
    sizes = dict(SIZES)
    if family == "qwen2":
        del sizes["head_dim"]  # it is hidden_size / num_attention_heads
    config = CONFIG_MAPPING[family](**{**sizes, **extra})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(os.path.join(folder, "model"))
    os.remove(os.path.join(folder, "model", "generation_config.json"))
    ids = torch.randint(0, config.vocab_size, (1, 40))
    logits = model(ids).logits[0]
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="sum")
    loss.backward()
    os.makedirs(os.path.join(folder, "gradients"), exist_ok=True)
    save_file({name: p.grad.contiguous() for name, p in model.named_parameters()},
              os.path.join(folder, "gradients", "model.safetensors"))
    with torch.no_grad():
        greedy = model.generate(ids[:, :8], max_new_tokens=20, do_sample=False, eos_token_id=None)[0, 8:]
    rows = [0, 1, 7, 39]
    record = {
        "made_by": "transformers %s, torch %s, FP32" % (transformers.__version__, torch.__version__.split("+")[0]),
        "ids": ids[0].tolist(),
        "loss_sum": float(torch.nn.functional.cross_entropy(logits[:-1].double(), ids[0, 1:], reduction="sum")),
        "logit_rows": rows,
        "logits": [[round(float(v), 7) for v in logits[r]] for r in rows],
        "greedy_prompt": 8,
        "greedy": greedy.tolist(),
    }
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(record, file)
        file.write("\n")
