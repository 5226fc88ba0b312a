// Reading the JSON of a stage: typed fields with an error that names stage and field, and tables of kinds.
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/text/pipeline/regex.h"
#include "core/text/pipeline/stages.h"

namespace invar {

Status bad_stage(std::string_view stage, std::string_view what);
Status unsupported_stage(std::string_view what, std::string_view kind, std::string_view supported);

// The "type" of a stage; empty when there is none.
std::string stage_type(const Json& json);
// Missing or null: `missing`.
Result<std::string> text_field(const Json& json, std::string_view key, std::string_view missing);
Result<bool> flag_field(const Json& json, std::string_view key, bool missing);
Result<int64_t> number_field(const Json& json, std::string_view key, int64_t missing);
// {"String": ...} or {"Regex": ...} under "pattern".
Result<Regex> pattern_field(const Json& json);

// One kind of a stage.
template <typename Stage>
struct StageKind {
  std::string_view name;
  Result<std::unique_ptr<Stage>> (*make)(const Json& json);
};

// The stage that `json` describes, by its "type"; "Sequence" is the caller's.
template <typename Stage, size_t N>
Result<std::unique_ptr<Stage>> make_by_kind(std::string_view what, const Json& json,
                                            const StageKind<Stage> (&kinds)[N]) {
  const std::string type = stage_type(json);
  std::string supported = "Sequence";
  for (const auto& kind : kinds) {
    if (kind.name == type) return kind.make(json);
    supported += cat(", ", kind.name);
  }
  return unsupported_stage(what, type, supported);
}

// The stages of a "Sequence" under `key`, each handed to take(json) -> Status.
template <typename Take>
Status for_each_stage(const Json& json, std::string_view key, Take take) {
  const auto list = json.find(std::string(key));
  if (list == json.end() || !list->is_array()) return bad_stage("Sequence", cat("\"", key, "\" is not a list"));
  for (const Json& stage : *list) INVAR_TRY(take(stage));
  return {};
}

}  // namespace invar
