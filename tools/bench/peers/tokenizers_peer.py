"""Encodes a text with the Hugging Face tokenizers library on one thread: speed, and the ids for comparison.

  python tokenizers_peer.py TOKENIZER.json TEXT [--ids OUT] [--piece 4096]

The text is cut after the line that reaches --piece bytes, as core/text/pipeline:tokenizer_bench cuts it; each piece is one
document. --ids writes all ids as little-endian 32-bit integers.
"""
import argparse
import array
import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer, __version__  # noqa: E402


def pieces_of(data, size):
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + size - 1)
        end = len(data) if end < 0 else end + 1
        yield data[at:end].decode("utf-8")
        at = end


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("text")
    parser.add_argument("--ids")
    parser.add_argument("--piece", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    tokenizer.no_truncation()
    data = open(args.text, "rb").read()
    pieces = list(pieces_of(data, args.piece))
    rates, ids = [], []
    for _ in range(args.runs):
        start = time.perf_counter()
        ids = [tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces]
        rates.append(len(data) / 1e6 / (time.perf_counter() - start))
    rates.sort()
    print(f"tokenizers {__version__}: {len(pieces)} pieces, {sum(map(len, ids))} ids, best {rates[-1]:.2f} MB/s, median {rates[len(rates) // 2]:.2f} MB/s")
    if args.ids:
        flat = array.array("i")
        for piece in ids:
            flat.extend(piece)
        with open(args.ids, "wb") as out:
            flat.tofile(out)


if __name__ == "__main__":
    main()
