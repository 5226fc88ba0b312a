// SHA-256 of a stream of bytes, by OpenSSL's code for the processor at hand.
//
//   Sha256 hash;
//   hash.update(bytes);
//   line.set_source_sha256(hash.hex());
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace invar {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  // 64 hex digits; ends the stream.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace invar
