// What a tokenizer puts around a text: the table of post-processors and its kinds.
#include "core/text/pipeline/json_stage.h"

namespace invar {
namespace {

using PostProcessorResult = Result<std::unique_ptr<PostProcessor>>;
using Ids = std::vector<int32_t>;

class Around final : public PostProcessor {
 public:
  Around(Ids before, Ids after) : before_(std::move(before)), after_(std::move(after)) {}
  Ids before() const override { return before_; }
  Ids after() const override { return after_; }

 private:
  Ids before_, after_;
};

PostProcessorResult around(Ids before, Ids after) {
  return std::unique_ptr<PostProcessor>(new Around(std::move(before), std::move(after)));
}

// The ids of a template's special token: special_tokens[name].ids.
Result<Ids> template_ids(const Json& json, const std::string& name) {
  const auto table = json.find("special_tokens");
  if (table != json.end() && table->is_object()) {
    const auto entry = table->find(name);
    if (entry != table->end() && entry->is_object() && entry->contains("ids") && entry->at("ids").is_array()) {
      Ids ids;
      for (const Json& id : entry->at("ids")) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) break;
        ids.push_back(id.get<int32_t>());
      }
      if (ids.size() == entry->at("ids").size()) return ids;
    }
  }
  return bad_stage("TemplateProcessing", cat("\"special_tokens\" has no ids for \"", name, "\""));
}

PostProcessorResult make_template(const Json& json) {
  Ids before, after;
  bool seen_text = false;
  INVAR_TRY(for_each_stage(json, "single", [&](const Json& piece) -> Status {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (seen_text) return unsupported_stage("TemplateProcessing: single", "$A twice", "one sequence");
      seen_text = true;
      return {};
    }
    const auto special = piece.is_object() ? piece.find("SpecialToken") : piece.end();
    if (!piece.is_object() || special == piece.end()) {
      return bad_stage("TemplateProcessing", "\"single\" holds neither a Sequence nor a SpecialToken");
    }
    INVAR_ASSIGN(const std::string name, text_field(*special, "id", ""));
    INVAR_ASSIGN(const Ids ids, template_ids(json, name));
    Ids& side = seen_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
    return {};
  }));
  if (!seen_text) return bad_stage("TemplateProcessing", "\"single\" holds no Sequence");
  return around(std::move(before), std::move(after));
}

// "cls" before and "sep" after, each [token, id].
PostProcessorResult make_cls_sep(const Json& json) {
  Ids ids;
  for (const char* key : {"cls", "sep"}) {
    const auto pair = json.find(key);
    if (pair == json.end() || !pair->is_array() || pair->size() != 2 || !pair->at(1).is_number_unsigned() ||
        pair->at(1).get<uint64_t>() > INT32_MAX) {
      return bad_stage(stage_type(json), cat("\"", key, "\" is not a token and its id"));
    }
    ids.push_back(pair->at(1).get<int32_t>());
  }
  return around({ids[0]}, {ids[1]});
}

constexpr StageKind<PostProcessor> kKinds[] = {
    {"TemplateProcessing", make_template},
    {"ByteLevel", [](const Json&) { return around({}, {}); }},  // it moves offsets only
    {"BertProcessing", make_cls_sep},
    {"RobertaProcessing", make_cls_sep},
};

}  // namespace

PostProcessorResult make_post_processor(const Json& json) {
  if (json.is_null()) return std::unique_ptr<PostProcessor>();
  if (stage_type(json) != "Sequence") return make_by_kind("post-processor", json, kKinds);
  Ids before, after;
  INVAR_TRY(for_each_stage(json, "processors", [&](const Json& stage) -> Status {
    INVAR_ASSIGN(const auto made, make_post_processor(stage));
    if (!made) return {};
    const Ids first = made->before(), last = made->after();
    before.insert(before.begin(), first.begin(), first.end());
    after.insert(after.end(), last.begin(), last.end());
    return {};
  }));
  return around(std::move(before), std::move(after));
}

}  // namespace invar
