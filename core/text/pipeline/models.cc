// The table of token models.
#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/model_bpe.h"
#include "core/text/pipeline/model_unigram.h"

namespace invar {

Result<std::unique_ptr<TokenModel>> make_model(const Json& json, bool reads_bytes) {
  if (!json.is_object()) return bad_stage("model", "missing");
  std::string type = stage_type(json);
  // Files of old versions name no type.
  if (type.empty()) type = json.contains("merges") ? "BPE" : "";
  if (type == "BPE") return make_bpe_model(json, reads_bytes);
  if (type == "Unigram") return make_unigram_model(json);
  return unsupported_stage("tokenizer model", type, "BPE, Unigram");
}

}  // namespace invar
