#include <algorithm>

#include "core/container/checkpoint_folder.h"
#include "core/container/json_events.h"

namespace invar {
namespace {

class IndexEvents : public JsonEvents {
 public:
  ShardIndex index;
  bool has_map = false;

 protected:
  bool on_object() override {
    if (level() == 2 && field_ == "weight_map") return has_map = true;
    return !in_map() || not_a_name("an object");
  }
  bool on_object_end() override { return true; }
  bool on_array() override { return !in_map() || not_a_name("a list"); }
  bool on_array_end() override { return true; }

  bool on_key(std::string& key) override {
    if (level() == 1) {
      if (key == "weight_map" && has_map) return bad("\"weight_map\" appears twice");
      field_ = std::move(key);
    } else if (level() == 2) {
      key_ = std::move(key);
    }
    return true;
  }

  bool on_string(std::string& value) override {
    if (level() == 1 && field_ == "weight_map") return bad("\"weight_map\" is not an object");
    if (in_map()) index.weight_map.emplace_back(key_, std::move(value));
    return true;
  }

  bool on_unsigned(uint64_t value) override {
    if (level() == 2 && field_ == "metadata" && key_ == "total_size" && value <= INT64_MAX) {
      index.total_size = static_cast<int64_t>(value);
    }
    return on_other(std::to_string(value));
  }

  bool on_other(std::string_view text) override {
    if (level() == 1 && field_ == "weight_map") return bad("\"weight_map\" is not an object");
    return !in_map() || not_a_name(text);
  }

 private:
  bool in_map() const { return level() >= 2 && field_ == "weight_map"; }
  bool bad(const std::string& what) { return fail(Error(Code::kDataLoss, "index.bad", cat(label(), ": ", what))); }
  bool not_a_name(std::string_view value) {
    return bad(cat("tensor ", in_quotes(key_), " is mapped to ", value, "; a file name is expected"));
  }

  std::string field_;
  std::string key_;
};

bool is_plain_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  const bool drive = name.size() >= 2 && name[1] == ':';
  return !drive && name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<ShardIndex> ShardIndex::parse(std::string_view label, std::string_view text) {
  IndexEvents events;
  INVAR_TRY(events.run(label, text, "index.bad", /*depth=*/32));
  if (!events.has_map) return Error(Code::kDataLoss, "index.bad", cat(label, ": has no \"weight_map\" object"));
  StringMap& map = events.index.weight_map;
  std::stable_sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < map.size(); ++i) {
    if (i > 0 && map[i].first == map[i - 1].first) {
      return Error(Code::kDataLoss, "index.bad", cat(label, ": tensor ", in_quotes(map[i].first), " is mapped twice"));
    }
    if (!is_plain_name(map[i].second)) {
      return Error(Code::kDataLoss, "index.unsafe_path",
                   cat(label, ": tensor ", in_quotes(map[i].first), " is mapped to ", in_quotes(map[i].second),
                       "; only plain file names in the same folder are followed"));
    }
  }
  return std::move(events.index);
}

}  // namespace invar
