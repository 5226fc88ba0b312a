// A plain driver for a libFuzzer entry point: runs every file of the folders given, then mutations of them, from a
// fixed seed so that a failure repeats. Usage: NAME_fuzz [--mutations N] [--seed S] FILE_OR_FOLDER...
// On a crash the input lies in the file named by TEST_TMPDIR (or the working folder): crash.input.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string crash_path() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return invar::join_path(folder != nullptr ? folder : ".", "crash.input");
}

void run(const std::string& input) {
  // Written first: after an abort there is no second chance.
  if (FILE* file = std::fopen(crash_path().c_str(), "wb")) {
    std::fwrite(input.data(), 1, input.size(), file);
    std::fclose(file);
  }
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

void collect(const std::string& path, std::vector<std::string>& inputs) {
  auto& files = invar::posix_files();
  if (files.is_directory(path)) {
    const auto entries = files.list(path);
    if (!entries.ok()) return;
    for (const auto& entry : *entries) collect(invar::join_path(path, entry.name), inputs);
    return;
  }
  // The grammar is in the first bytes; large files only slow the mutations down.
  auto text = invar::read_text(files, path, 1 << 16);
  if (text.ok()) inputs.push_back(std::move(text).value());
}

// One to four edits: flip, overwrite, cut, repeat, insert a token, splice with another input, patch the length.
std::string mutate(std::string bytes, const std::vector<std::string>& inputs, invar::Rng& rng) {
  static const char* const kTokens[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "0",
                                        "-1",
                                        "1e9",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "null",
                                        "\"shape\"",
                                        "\"dtype\"",
                                        "\"data_offsets\"",
                                        "\"__metadata__\"",
                                        "\"weight_map\"",
                                        "\"F4\"",
                                        "\"F8_E4M3\"",
                                        "\\u0000",
                                        "../",
                                        "\xff",
                                        "[[[[[[[[[["};
  const uint64_t edits = 1 + rng.next_below(4);
  for (uint64_t edit = 0; edit < edits; ++edit) {
    const size_t at = bytes.empty() ? 0 : rng.next_below(bytes.size());
    switch (rng.next_below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.next_below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng.next_below(256));
        break;
      case 2: bytes.erase(at, 1 + rng.next_below(16)); break;
      case 3: bytes.insert(at, bytes.substr(at, 1 + rng.next_below(64))); break;
      case 4: bytes.insert(at, kTokens[rng.next_below(std::size(kTokens))]); break;
      case 5: {
        const std::string& other = inputs[rng.next_below(inputs.size())];
        bytes = bytes.substr(0, at) + other.substr(std::min<size_t>(other.size(), rng.next_below(other.size() + 1)));
        break;
      }
      default:
        if (bytes.size() >= 8) bytes[rng.next_below(8)] = static_cast<char>(rng.next_below(256));
    }
  }
  // Half of the time the length matches again, so that edits reach the layers behind it.
  if (bytes.size() >= 8 && rng.next_below(2) == 0) {
    const size_t end = bytes.rfind('}');
    if (end != std::string::npos && end >= 8) {
      for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{end - 7} >> (8 * i) & 0xff);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t mutations = 20000, seed = 1;
  std::vector<std::string> inputs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      collect(argument, inputs);
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no inputs: name files or folders\n");
    return 2;
  }
  for (const std::string& input : inputs) run(input);
  invar::Rng rng(seed);
  for (uint64_t i = 0; i < mutations; ++i) run(mutate(inputs[rng.next_below(inputs.size())], inputs, rng));
  std::remove(crash_path().c_str());
  std::printf("%zu inputs and %llu mutations from seed %llu\n", inputs.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
  return 0;
}
