// A plain driver for a libFuzzer entry point: runs every file of the folders given, then mutations of them, from a
// fixed seed so that a failure repeats. Usage: NAME_fuzz [--mutations N] [--seconds T] [--seed S] FILE_OR_FOLDER...
// With --seconds it goes on for that long, whatever the number of mutations, from a seed of the clock that it prints;
// the environment's INVAR_SOAK_SECONDS goes before it.
// On a crash the input lies in the folder named by TEST_TMPDIR (or the working folder): crash.input. Under a sanitizer,
// which ends the program itself, run again with the same seed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// What runs now, for the handler: it may only touch plain memory and make system calls.
const char* g_input = nullptr;
size_t g_size = 0;
char g_crash_path[4096];

extern "C" void save_input(int signal_number) {
  const int fd = ::open(g_crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0) {
    const bool written = ::write(fd, g_input, g_size) == static_cast<ssize_t>(g_size);
    ::close(fd);
    if (written) {
      static const char kNote[] = "fuzz: the input was saved as crash.input\n";
      (void)!::write(2, kNote, sizeof(kNote) - 1);
    }
  }
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void run(const std::string& input) {
  g_input = input.data();
  g_size = input.size();
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

// True for bytes that begin with a length of what follows, as safetensors files do.
bool begins_with_length(const std::string& bytes) {
  uint64_t length = 0;
  if (bytes.size() < 8) return false;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return length <= bytes.size() - 8;
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
                                        "PK\x05\x06",
                                        "PK\x01\x02",
                                        "\x80\x02}q",
                                        "ctorch\nSize\n",
                                        "cos\nsystem\n",
                                        "X\x04",
                                        "\xff",
                                        "\xff\xff\xff\xff\xff\xff\xff\x7f",
                                        "[[[[[[[[[["};
  const bool has_length = begins_with_length(bytes);
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
  if (has_length && bytes.size() >= 8 && rng.next_below(2) == 0) {
    const size_t end = bytes.rfind('}');
    if (end != std::string::npos && end >= 8) {
      for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{end - 7} >> (8 * i) & 0xff);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t mutations = 20000, seed = 1, seconds = 0;
  std::vector<std::string> inputs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seconds" && i + 1 < argc) {
      seconds = std::strtoull(argv[++i], nullptr, 10);
    } else {
      collect(argument, inputs);
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no inputs: name files or folders\n");
    return 2;
  }
  const char* folder = std::getenv("TEST_TMPDIR");
  std::snprintf(g_crash_path, sizeof(g_crash_path), "%s/crash.input", folder != nullptr ? folder : ".");
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal_number, save_input);
  const char* asked = std::getenv("INVAR_SOAK_SECONDS");
  if (seconds > 0 && asked != nullptr) seconds = std::strtoull(asked, nullptr, 10);
  const auto begin = std::chrono::steady_clock::now();
  if (seconds > 0) {
    seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
  for (const std::string& input : inputs) run(input);
  invar::Rng rng(seed);
  const auto goes_on = [&](uint64_t done) {
    if (seconds == 0) return done < mutations;
    return std::chrono::steady_clock::now() - begin < std::chrono::seconds(seconds);
  };
  uint64_t done = 0;
  for (; goes_on(done); ++done) run(mutate(inputs[rng.next_below(inputs.size())], inputs, rng));
  std::printf("%zu inputs and %llu mutations from seed %llu\n", inputs.size(), static_cast<unsigned long long>(done),
              static_cast<unsigned long long>(seed));
  return 0;
}
