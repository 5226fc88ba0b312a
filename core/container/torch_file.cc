// Weights in one file of torch.save.
#include <algorithm>
#include <array>

#include "core/container/pieces_file.h"
#include "core/container/torch_archive.h"
#include "core/container/torch_formats.h"

namespace invar {
namespace {

// Under these keys trainers keep the weights beside other states.
constexpr std::string_view kWeightKeys[] = {"state_dict", "model_state_dict", "model", "module"};

// Walks nested dicts and lists; every tensor gets the keys on the way to it as its name.
class StateDict {
  static constexpr size_t kLongestName = 4096, kNamed = 6;

 public:
  StateDict(const TorchArchive& archive, PiecesFile& file) : archive_(archive), file_(file) {}

  Status read() {
    PickleValue root = archive_.root();
    std::vector<std::string> left_out;
    for (const std::string_view key : kWeightKeys) {
      const PickleValue inner = root.find(key);
      if (!inner.is(PickleKind::kDict) || !holds_tensors(inner)) continue;
      for (size_t i = 0; i < root.size(); ++i) {
        if (root.key(i).text() != key && left_out.size() < kNamed) left_out.push_back(name_of_key(root.key(i), i));
      }
      root = inner;
      break;
    }
    INVAR_TRY(walk(root, "", 0));
    if (!left_out.empty()) {
      file_.find("other_states", cat(file_.path(), ": only the weights were read, not ", some_of(left_out)));
    }
    if (others_ > 0) {
      file_.find("other_values", cat(file_.path(), ": ", others_,
                                     " values that are no tensors were left out: ", some_of(named_others_)));
    }
    return {};
  }

 private:
  static bool holds_tensors(PickleValue dict) {
    for (size_t i = 0; i < dict.size(); ++i) {
      if (dict.value(i).callee().starts_with("torch.")) return true;
    }
    return false;
  }

  static std::string name_of_key(PickleValue key, size_t i) {
    if (key.is(PickleKind::kText)) return std::string(key.text());
    return std::to_string(key.integer().value_or(static_cast<int64_t>(i)));
  }

  static std::string some_of(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < 5; ++i) text += cat(i == 0 ? "" : ", ", in_quotes(names[i]));
    return names.size() > 5 ? cat(text, " and ", names.size() - 5, " more") : text;
  }

  Status walk(PickleValue value, const std::string& name, int depth) {
    constexpr int kDeepest = 16;
    const auto bad = [&](const std::string& what) {
      return Error(Code::kDataLoss, "torch.bad_tensor", cat(file_.path(), ": the entry ", in_quotes(name), what));
    };
    // A list may be reached on many ways: without this bound a small pickle could stand for endless names.
    if (++visits_ > 4 * archive_.pickle().values() + 16) return bad(" is reached again and again");
    if (name.size() > kLongestName) return bad(" has a name that is too long");
    const bool dict = value.is(PickleKind::kDict);
    if (dict || value.is(PickleKind::kList) || value.is(PickleKind::kTuple)) {
      if (depth >= kDeepest) return bad(cat(" is nested more than ", kDeepest, " deep"));
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string key = dict ? name_of_key(value.key(i), i) : std::to_string(i);
        INVAR_TRY(walk(dict ? value.value(i) : value.item(i), name.empty() ? key : cat(name, ".", key), depth + 1));
      }
      return {};
    }
    INVAR_ASSIGN(auto tensor, archive_.tensor(value, name));
    if (!tensor) {
      if (++others_ <= kNamed) named_others_.push_back(name);
      return {};
    }
    return file_.add({name.empty() ? "tensor" : name, tensor->dtype, tensor->shape}, {tensor->box});
  }

  const TorchArchive& archive_;
  PiecesFile& file_;
  std::vector<std::string> named_others_;
  size_t others_ = 0;  // values that are no tensors
  size_t visits_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightFile>> open_torch_file(FileSystem& files, const std::string& path,
                                                    const ContainerLimits& limits, int file_index) {
  INVAR_ASSIGN(std::shared_ptr<const RandomAccessFile> stored, files.open(path));
  INVAR_ASSIGN(const TorchArchive archive, TorchArchive::open(stored, limits));
  auto file = std::make_unique<PiecesFile>("torch", path, limits, file_index);
  file->add_part(stored);
  INVAR_TRY(StateDict(archive, *file).read());
  INVAR_TRY(file->finish());
  return std::unique_ptr<WeightFile>(std::move(file));
}

bool is_torch_weights(std::string_view name) {
  static constexpr std::string_view kStates[] = {"training_args", "optimizer", "scheduler",
                                                 "scaler",        "openvino",  "rng_state",
                                                 "random_states", "sampler",   "trainer_state"};
  if (name.find("_states.") != std::string_view::npos) return false;  // DeepSpeed's
  return std::none_of(std::begin(kStates), std::end(kStates),
                      [name](std::string_view state) { return name.starts_with(state); });
}

}  // namespace invar
