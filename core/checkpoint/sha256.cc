#include "core/checkpoint/sha256.h"

// The plain functions: the newer interface brings a registry of algorithms, configuration files and much code with it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace invar {

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) { SHA256_Update(&state_->context, bytes.data(), bytes.size()); }

std::string Sha256::hex() {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &state_->context);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace invar
