#include "core/train/progress.h"

#include <nlohmann/json.hpp>

namespace invar {

using Json = nlohmann::ordered_json;

void Progress::add_loss(double loss) {
  if (!first_loss) first_loss = loss;
  recent_losses.push_back(loss);
  if (recent_losses.size() > kRecent) recent_losses.pop_front();
}

double Progress::tail_loss() const {
  double sum = 0;
  for (const double loss : recent_losses) sum += loss;
  return recent_losses.empty() ? 0 : sum / static_cast<double>(recent_losses.size());
}

std::string Progress::save() const {
  Json spans_json = Json::array();
  for (const RecipeSpanState& span : spans) {
    spans_json.push_back({{"recipe", recipe_name(span.recipe)},
                          {"first_step", span.first_step},
                          {"last_step", span.last_step},
                          {"reason", span.reason}});
  }
  Json json = {{"steps", steps},
               {"total_tokens", total_tokens},
               {"total_skipped", total_skipped},
               {"skipped_in_a_row", skipped_in_a_row},
               {"seconds", seconds},
               {"recent_losses", recent_losses},
               {"recipes", spans_json},
               {"data_epoch", data.epoch},
               {"data_index", data.index},
               {"data_digest", data_digest}};
  if (first_loss) json["first_loss"] = *first_loss;
  if (best_eval_loss) json["best_eval_loss"] = *best_eval_loss;
  return json.dump();
}

Result<Progress> Progress::restore(std::string_view text) {
  try {
    const auto json = Json::parse(text);
    Progress progress;
    json.at("steps").get_to(progress.steps);
    json.at("total_tokens").get_to(progress.total_tokens);
    json.at("total_skipped").get_to(progress.total_skipped);
    json.at("skipped_in_a_row").get_to(progress.skipped_in_a_row);
    json.at("seconds").get_to(progress.seconds);
    json.at("recent_losses").get_to(progress.recent_losses);
    json.at("data_epoch").get_to(progress.data.epoch);
    json.at("data_index").get_to(progress.data.index);
    json.at("data_digest").get_to(progress.data_digest);
    if (json.contains("first_loss")) progress.first_loss = json["first_loss"].get<double>();
    if (json.contains("best_eval_loss")) progress.best_eval_loss = json["best_eval_loss"].get<double>();
    for (const auto& entry : json.at("recipes")) {
      INVAR_ASSIGN(const Recipe recipe, recipe_from_name(entry.at("recipe").get<std::string>()));
      progress.spans.push_back({recipe, entry.at("first_step").get<int64_t>(), entry.at("last_step").get<int64_t>(),
                                entry.at("reason").get<std::string>()});
    }
    if (progress.steps < 0) {
      return Error(Code::kDataLoss, "checkpoint.bad_progress", cat("saved progress: ", progress.steps, " steps"));
    }
    return progress;
  } catch (const nlohmann::json::exception& error) {
    return Error(Code::kDataLoss, "checkpoint.bad_progress", cat("saved progress: ", error.what()));
  }
}

}  // namespace invar
