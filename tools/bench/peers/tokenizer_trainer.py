"""Trains a byte-level vocabulary with the Hugging Face trainer and writes its tokens and merges.

  python tokenizer_trainer.py CORPUS SIZE OUT.json

tests/cases/tokenizers/trainer/expected.json comes from the corpus beside it with size 1500.
"""
import json
import sys
import time

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def main():
    corpus, size, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    start = time.perf_counter()
    tokenizer.train([corpus], trainer)
    print(f"{time.perf_counter() - start:.2f} s")
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    json.dump({"size": size, "tokens": tokens, "merges": model["merges"]}, open(out, "w", encoding="utf-8"), ensure_ascii=False)


if __name__ == "__main__":
    main()
