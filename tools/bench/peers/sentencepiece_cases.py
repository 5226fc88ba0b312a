"""Trains two small SentencePiece models and writes what the sentencepiece library makes of the case strings.

  python sentencepiece_cases.py CORPUS STRINGS.json OUT_FOLDER

tests/cases/tokenizers/sentencepiece comes from the corpus and the strings in tests/cases/tokenizers.
"""
import json
import pathlib
import sys

import sentencepiece as spm


def main():
    corpus, strings, out = sys.argv[1], json.load(open(sys.argv[2], encoding="utf-8")), pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    rule = out / "rule.tsv"
    rule.write_text("FF21\t41\nFF22\t42\n41 30A\tC5\nFB01\t66 69\n3000\t20\nA0\t20\n9\t20\n2460\t31\n", encoding="utf-8")
    common = dict(input=corpus, vocab_size=700, hard_vocab_limit=False, minloglevel=2, num_threads=1, character_coverage=0.999)
    spm.SentencePieceTrainer.train(model_prefix=str(out / "bpe"), model_type="bpe", byte_fallback=True, split_digits=True,
                                   normalization_rule_name="identity", remove_extra_whitespaces=False,
                                   user_defined_symbols=["<|user|>", "<br>"], **common)
    spm.SentencePieceTrainer.train(model_prefix=str(out / "unigram"), model_type="unigram", normalization_rule_tsv=str(rule),
                                   user_defined_symbols=["<sep>"], **common)
    rule.unlink()
    strings = strings + ["<|user|> hi<br>there", "a <sep> b", "  <sep>", "ＡＢ x\u3000y", "A\u030a"]
    table = []
    for kind in ("bpe", "unigram"):
        (out / f"{kind}.vocab").unlink()
        model = spm.SentencePieceProcessor(model_file=str(out / f"{kind}.model"))
        rows = []
        for text in strings:
            ids = model.encode(text)
            rows.append({"text": text, "ids": ids, "decoded": model.decode(ids)})
        table.append({"model": f"{kind}.model", "cases": rows})
    (out / "cases.json").write_text(json.dumps(table, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
