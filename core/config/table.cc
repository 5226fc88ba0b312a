#include "core/config/table.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"

namespace invar::config {

namespace {
#include "proto/invar/v1/invar_cc_table.inc"

constexpr std::string_view kPackage = "invar.v1.";
constexpr std::string_view kSuffix = "Config";

// "train" for TrainConfig; empty for messages that are no configs.
std::string word_of(const MessageType& type) {
  std::string_view name = type.short_name();
  if (!name.ends_with(kSuffix)) return {};
  name.remove_suffix(kSuffix.size());
  std::string out;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out += '_';
    out += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

const char* noun_of(const Field& field) {
  switch (field.kind) {
    case Kind::kBool: return "true or false";
    case Kind::kInt32:
    case Kind::kInt64: return "an integer";
    case Kind::kUint64: return "a non-negative integer";
    case Kind::kDouble: return "a number";
    case Kind::kString: return "a string";
    case Kind::kMap: return "an object of strings";
    case Kind::kMessage: return "an object";
    case Kind::kEnum: break;
  }
  return "a name";
}

}  // namespace

const Field* MessageType::find(std::string_view name) const {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

const Field* MessageType::find(int32_t number) const {
  for (const Field& field : fields) {
    if (field.number == number) return &field;
  }
  return nullptr;
}

std::string_view MessageType::short_name() const {
  std::string_view name = full_name;
  name.remove_prefix(kPackage.size());
  return name;
}

std::span<const MessageType> message_types() { return kMessages; }

const MessageType* find_message(std::string_view name) {
  for (const MessageType& type : kMessages) {
    if (name == type.full_name || name == type.short_name() || (!name.empty() && name == word_of(type))) return &type;
  }
  return nullptr;
}

std::string config_words() {
  std::string out;
  for (const MessageType& type : kMessages) {
    const std::string word = word_of(type);
    if (!word.empty()) out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr size_t kLongest = 128;  // bounds the work for a hostile key
  if (word.size() > kLongest) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view best = nearest(word, candidates);
  if (!best.empty()) return cat("; did you mean \"", best, "\"?");
  std::string known;
  for (const auto candidate : candidates) known += (known.empty() ? "" : ", ") + std::string(candidate);
  return known.empty() ? std::string() : "; known: " + known;
}

std::string expectation(const Field& field, bool element) {
  std::string out;
  if (field.kind == Kind::kEnum) {
    for (const EnumValue& value : field.enumeration->values) {
      if (value.number != 0) out += (out.empty() ? "one of " : ", ") + std::string(value.name);
    }
  } else {
    out = noun_of(field);
  }
  return field.repeated && !element ? "a list, each element " + out : out;
}

}  // namespace invar::config
