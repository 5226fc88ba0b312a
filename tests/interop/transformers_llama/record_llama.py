"""Records what transformers computes for a tiny random Llama: the fixture of llama_test.cc (model/, expected.json).

    python record_llama.py OUTPUT_FOLDER
"""
import json
import os
import sys

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

folder = sys.argv[1]
model_folder = os.path.join(folder, "model")
torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=211, hidden_size=48, intermediate_size=88, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 50000.0}, bos_token_id=1, eos_token_id=2,
    initializer_range=0.15)
model = LlamaForCausalLM(config).eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.add_(0.2 * torch.randn_like(parameter))
model.save_pretrained(model_folder)
ids = torch.randint(0, config.vocab_size, (1, 40))
with torch.no_grad():
    logits = model(ids).logits[0]
    greedy = model.generate(ids[:, :8], max_new_tokens=24, do_sample=False, eos_token_id=None)[0, 8:]
loss = torch.nn.functional.cross_entropy(logits[:-1].double(), ids[0, 1:], reduction="sum")
rows = [0, 1, 7, 39]
record = {
    "made_by": "transformers %s, torch %s, FP32" % (transformers.__version__, torch.__version__.split("+")[0]),
    "ids": ids[0].tolist(),
    "loss_sum": float(loss),
    "logit_rows": rows,
    "logits": [[round(float(v), 7) for v in logits[r]] for r in rows],
    "greedy_prompt": 8,
    "greedy": greedy.tolist(),
}
with open(os.path.join(folder, "expected.json"), "w") as file:
    json.dump(record, file)
    file.write("\n")
