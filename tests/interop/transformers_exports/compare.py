"""Loads what invar exported with transformers and compares the logits with invar's own.

    compare.py LOGITS_PROGRAM EXPORTS    EXPORTS holds bf16/, fp8_block/, fp8_tensor/, fp8_channel/

Exit status 77 says, in one line, which package is missing."""
import importlib
import os
import subprocess
import sys
import tempfile

for package in ("torch", "transformers", "safetensors"):
    try:
        importlib.import_module(package)
    except Exception as error:  # a package that does not load is as good as none
        print(f"SKIPPED: python package {package} is missing ({error})")
        sys.exit(77)

import torch
import transformers

transformers.logging.set_verbosity_error()
program, exports = sys.argv[1:]
torch.manual_seed(5)
IDS = torch.randint(0, 256, (1, 48))
# Both sides compute in FP32 from the same weights, in another order of summation: 2^-24 of sums of about 100 terms
# through a few layers.
BOUND = 1e-4


def ours(folder):
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "logits")
        subprocess.run([program, folder, out] + [str(i) for i in IDS[0].tolist()], check=True)
        return torch.frombuffer(bytearray(open(out, "rb").read()), dtype=torch.float32).reshape(IDS.shape[1], -1)


def theirs(folder, **options):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    with torch.no_grad():
        return model, model(IDS).logits[0].float()


def check(name, folder, **options):
    model, expected = theirs(folder, **options)
    got = ours(folder)
    worst = (got - expected).abs().max().item()
    agree = (got.argmax(-1) == expected.argmax(-1)).all().item()
    print(f"{name}: largest logit {expected.abs().max():.3f}, largest difference {worst:.2e}, same next tokens: {agree}")
    return worst < BOUND and agree


def block(folder):
    from transformers import FineGrainedFP8Config
    return check("fp8 128x128", folder, quantization_config=FineGrainedFP8Config(dequantize=True))


def compressed(name, folder):
    from transformers import CompressedTensorsConfig
    return check(name, folder, quantization_config=CompressedTensorsConfig(run_compressed=False))


def attempt(name, package, work):
    """None when a package that only this needs is missing."""
    try:
        importlib.import_module(package)
    except Exception as error:
        print(f"SKIPPED: {name}: python package {package} is missing ({error})")
        return True
    return work()


good = check("bf16", os.path.join(exports, "bf16"))
tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.join(exports, "bf16"))
text = "the number 7 comes before"
back = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
print(f"tokenizer: {text!r} -> {back!r}")
good &= back == text
good &= attempt("fp8 128x128", "accelerate", lambda: block(os.path.join(exports, "fp8_block")))
for kind in ("tensor", "channel"):
    good &= attempt(f"compressed-tensors {kind}", "compressed_tensors",
                    lambda: compressed(f"compressed-tensors {kind}", os.path.join(exports, f"fp8_{kind}")))
sys.exit(0 if good else 1)
