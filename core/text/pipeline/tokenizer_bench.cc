// Rate of encoding on one thread, and its ratio to a peer's measured in the same session.
//
//   tokenizer_bench TOKENIZER.json TEXT [PEER_MB_PER_S] [IDS_OUT]
//
// tools/bench/peers/tokenizers_peer.py gives the peer's figure and ids for the same pieces of the same text. The limit
// printed beside it is a pass over the text that looks at every byte.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"

namespace {

constexpr int kRuns = 5;
constexpr size_t kPiece = 4096;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t line_end = text.find('\n', kPiece - 1);
    const size_t size = line_end == std::string_view::npos ? text.size() : line_end + 1;
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.json TEXT [PEER_MB_PER_S] [IDS_OUT]\n");
    return 2;
  }
  const auto load_start = std::chrono::steady_clock::now();
  const auto loaded = invar::load_tokenizer(invar::posix_files(), argv[1]);
  const auto text = invar::read_text(invar::posix_files(), argv[2], int64_t{1} << 30);
  if (!loaded.ok() || !text.ok()) {
    std::fprintf(stderr, "%s\n", (loaded.ok() ? text.status() : loaded.status()).message().c_str());
    return 3;
  }
  std::printf("load %.3f s, vocabulary %d\n", seconds_since(load_start), loaded.value()->vocab_size());
  const auto pieces = pieces_of(text.value());
  const double megabytes = static_cast<double>(text.value().size()) / 1e6;
  std::vector<double> rates;
  std::vector<int32_t> ids;
  for (int run = 0; run < kRuns; ++run) {
    ids.clear();
    const auto start = std::chrono::steady_clock::now();
    for (const std::string_view piece : pieces) loaded.value()->encode_to(piece, {.parse_special = true}, &ids);
    rates.push_back(megabytes / seconds_since(start));
  }
  std::sort(rates.begin(), rates.end());
  auto start = std::chrono::steady_clock::now();
  const auto decoded = loaded.value()->decode(ids, false);
  const double decode_rate = megabytes / seconds_since(start);
  start = std::chrono::steady_clock::now();
  const volatile unsigned total =
      std::accumulate(text.value().begin(), text.value().end(), 0u,
                      [](unsigned sum, char c) { return sum * 31 + static_cast<unsigned char>(c); });
  (void)total;
  const double limit = megabytes / seconds_since(start);
  std::printf(
      "encode: %zu pieces, %zu ids, best %.2f MB/s, median %.2f MB/s, %.2f %% of a pass over the bytes (%.0f MB/s)\n",
      pieces.size(), ids.size(), rates.back(), rates[rates.size() / 2], 100 * rates.back() / limit, limit);
  std::printf("decode: %.2f MB/s, %s\n", decode_rate,
              decoded.ok() && decoded.value() == text.value() ? "the text again" : "another text (normalised)");
  if (argc > 3) {
    const double peer = std::atof(argv[3]);
    std::printf("ratio to the peer: %.2f (peer %.2f MB/s)\n", peer > 0 ? rates.back() / peer : 0, peer);
  }
  if (argc > 4) {
    std::ofstream(argv[4], std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  }
  return 0;
}
