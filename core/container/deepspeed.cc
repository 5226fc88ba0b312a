// DeepSpeed's ZeRO folders. Each rank's file holds its partition of the FP32 master weights, all parameters of a group
// one after the other; the model's file holds their names and shapes. Stages 1 and 2 cut the whole group into
// partitions, stage 3 cuts every parameter.
//
// reasons: deepspeed.bad_partition  deepspeed.missing_rank  deepspeed.model_parallel, and those of torch_archive.h
#include <algorithm>
#include <map>
#include <optional>

#include "core/container/file_parts.h"
#include "core/container/pieces_file.h"
#include "core/container/torch_archive.h"
#include "core/container/torch_formats.h"

namespace invar {
namespace {

constexpr std::string_view kOptimStates = "_optim_states.pt", kModelStates = "_model_states.pt";
constexpr size_t kLongestName = 4096;
constexpr std::string_view kModelFile = "mp_rank_00_model_states.pt";

// The number behind `mark` in a file name; nothing when it is not there.
std::optional<int> number_after(std::string_view name, std::string_view mark) {
  const size_t at = name.find(mark);
  if (at == std::string_view::npos) return {};
  int number = 0, digits = 0;
  for (size_t i = at + mark.size(); i < name.size() && name[i] >= '0' && name[i] <= '9' && digits < 8; ++i, ++digits) {
    number = number * 10 + (name[i] - '0');
  }
  return digits == 0 ? std::optional<int>() : number;
}

using Entries = std::map<std::string_view, PickleValue>;

// The dict's entries for many look-ups.
Entries entries_of(PickleValue dict) {
  Entries entries;
  for (size_t i = 0; i < dict.size(); ++i) {
    const std::string_view name = dict.key(i).text();
    if (name.size() <= kLongestName) entries.insert_or_assign(name, dict.value(i));
  }
  return entries;
}

PickleValue value_or_none(const Entries& entries, std::string_view name, PickleValue none) {
  const auto it = entries.find(name);
  return it == entries.end() ? none : it->second;
}

// A run of elements in a file, one after the other.
struct Run {
  std::shared_ptr<const RandomAccessFile> file;
  DType dtype = DType::kUnspecified;
  int64_t begin = 0, count = 0;

  StoredBox part(int64_t first, int64_t n, int64_t at) const {
    return {file, begin + first * bytes_of(dtype, 1), {at}, {n}, {1}};
  }
};

class ZeroReader {
 public:
  ZeroReader(FileSystem& system, std::string folder, const ContainerLimits& limits, int file_index)
      : system_(system),
        folder_(std::move(folder)),
        limits_(limits),
        made_(std::make_unique<PiecesFile>("deepspeed", folder_, limits, file_index)) {}

  Result<std::unique_ptr<WeightFile>> run() {
    INVAR_TRY(open_files());
    if (ranks_.empty()) {
      INVAR_TRY(read_module());
    } else {
      INVAR_TRY(read_stage());
      INVAR_TRY(read_shapes(models_[0].root().find("param_shapes")));
      INVAR_TRY(stage_ == 3 ? join_stage3() : join_stage2());
      INVAR_TRY(join_frozen());
      INVAR_TRY(read_buffers());
    }
    INVAR_TRY(read_shared());
    INVAR_TRY(made_->finish());
    return std::unique_ptr<WeightFile>(std::move(made_));
  }

 private:
  using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

  Status bad(std::string_view reason, const std::string& what) const {
    return Error(Code::kDataLoss, reason, cat(folder_, ": ", what));
  }

  Status open_files() {
    INVAR_ASSIGN(const auto entries, system_.list(folder_));
    std::map<int, std::string> optim, models;
    for (const DirEntry& entry : entries) {
      const std::string_view name = entry.name;
      if (!name.ends_with(kOptimStates) && !name.ends_with(kModelStates)) continue;
      if (number_after(name, "mp_rank_") != 0 || name.find("expert_") != name.npos || name.starts_with("layer_")) {
        return bad("deepspeed.model_parallel",
                   cat(in_quotes(name), " belongs to a tensor, pipeline or expert parallel run; only data parallel ",
                       "partitions are put together here: make a universal checkpoint first"));
      }
      const int rank = number_after(name, "zero_pp_rank_").value_or(-1);
      (name.ends_with(kOptimStates) ? optim : models)[rank] = entry.name;
    }
    for (const auto& [rank, name] : optim) {
      if (rank != static_cast<int>(ranks_.size())) {
        return bad("deepspeed.missing_rank", cat("the partition of rank ", ranks_.size(), " is missing"));
      }
      INVAR_TRY(open(name, &ranks_));
    }
    for (const auto& [rank, name] : models) INVAR_TRY(open(name, &models_));
    if (models_.empty()) return bad("deepspeed.missing_rank", cat(kModelFile, " is missing"));
    return {};
  }

  Status open(const std::string& name, std::vector<TorchArchive>* archives) {
    INVAR_ASSIGN(auto file, open_on_demand(system_, join_path(folder_, name)));
    INVAR_ASSIGN(auto archive, TorchArchive::open(file, limits_));
    made_->add_part(file);
    archives->push_back(std::move(archive));
    return {};
  }

  static PickleValue states(const TorchArchive& rank) { return rank.root().find("optimizer_state_dict"); }

  Status read_stage() {
    const PickleValue stage = states(ranks_[0]).find("zero_stage");
    stage_ = (stage.is(PickleKind::kCall) ? stage.arguments().item(0) : stage).integer().value_or(-1);
    if (stage_ < 1 || stage_ > 3) {
      return bad("deepspeed.bad_partition", cat(ranks_[0].file()->path(), ": has no ZeRO stage between 1 and 3"));
    }
    const PickleValue counts = states(ranks_[0]).find("partition_count");
    int64_t count = counts.integer().value_or(0);
    for (size_t i = 0; i < counts.size(); ++i) count = std::max(count, counts.item(i).integer().value_or(0));
    if (count != static_cast<int64_t>(ranks_.size())) {
      return bad("deepspeed.missing_rank",
                 cat("the weights are cut into ", count, " partitions, but ", ranks_.size(), " are in the folder"));
    }
    return {};
  }

  Status read_shapes(PickleValue groups) {
    const bool one = groups.is(PickleKind::kDict);  // older versions, stage 3
    for (size_t g = 0; g < (one ? 1 : groups.size()); ++g) {
      const PickleValue group = one ? groups : groups.item(g);
      Shapes& shapes = shapes_.emplace_back();
      for (size_t i = 0; i < group.size(); ++i) {
        const auto shape = group.value(i).sizes();
        const std::string_view name = group.key(i).text();
        if (!group.key(i).is(PickleKind::kText) || !shape || name.size() > kLongestName) {
          return bad("deepspeed.bad_partition", "a name or shape of its param_shapes is damaged");
        }
        shapes.emplace_back(name, *shape);
      }
    }
    if (shapes_.empty()) return bad("deepspeed.bad_partition", "names no parameters (param_shapes)");
    return {};
  }

  Result<int64_t> elements(const std::string& name, const std::vector<int64_t>& shape) const {
    int64_t bytes = 0;
    if (checked_byte_size(DType::kF32, shape, &bytes) == SizeCheck::kOk) return bytes / 4;
    return bad("deepspeed.bad_partition",
               cat("tensor ", in_quotes(name), " of shape ", shape_text(shape), " overflows"));
  }

  // A tensor whose elements follow each other, as one run.
  Result<Run> run_of(const TorchArchive& archive, PickleValue value, std::string_view name) const {
    INVAR_ASSIGN(auto tensor, archive.tensor(value, name));
    if (!tensor) {
      return bad("deepspeed.bad_partition", cat(archive.file()->path(), ": ", in_quotes(name), " is no tensor"));
    }
    int64_t bytes = 0;
    const std::vector<int64_t>& sizes = tensor->box.sizes;
    if (checked_byte_size(tensor->dtype, tensor->shape, &bytes) != SizeCheck::kOk || bits_of(tensor->dtype) < 8 ||
        (bytes > 0 && extent_bytes(tensor->box, bytes_of(tensor->dtype, 1)) != bytes)) {
      return bad("deepspeed.bad_partition", cat(archive.file()->path(), ": ", in_quotes(name), " of shape ",
                                                shape_text(sizes), " does not lie in one run"));
    }
    return Run{archive.file(), tensor->dtype, tensor->box.begin, bytes / bytes_of(tensor->dtype, 1)};
  }

  Result<std::vector<Run>> flat_groups(size_t rank, std::string_view key) const {
    const PickleValue groups = states(ranks_[rank]).find(key);
    std::vector<Run> runs;
    for (size_t g = 0; g < groups.size(); ++g) {
      INVAR_ASSIGN(Run run, run_of(ranks_[rank], groups.item(g), cat(key, ".", g)));
      if (run.dtype != DType::kF32) {
        return bad("deepspeed.bad_partition", cat(ranks_[rank].file()->path(), ": ", key, " is not FP32"));
      }
      runs.push_back(std::move(run));
    }
    return runs;
  }

  Status add(const std::string& name, DType dtype, const std::vector<int64_t>& shape, std::vector<StoredBox> runs) {
    flat_[name] = {dtype, shape, runs};
    return made_->add_flat({name, dtype, shape}, std::move(runs));
  }

  // Stages 1 and 2: the partitions of a group, one rank after the other, are all its parameters and some padding.
  // Files of newer versions say for each rank where its part of each parameter lies.
  Status join_stage2() {
    std::vector<std::vector<Run>> ranks;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      INVAR_ASSIGN(auto runs, flat_groups(r, "single_partition_of_fp32_groups"));
      if (runs.size() != shapes_.size()) {
        return bad("deepspeed.bad_partition",
                   cat("rank ", r, " has ", runs.size(), " groups of parameters; ", shapes_.size(), " are named"));
      }
      ranks.push_back(std::move(runs));
    }
    std::vector<PickleValue> mappings;  // of each rank, a list of dicts
    for (const TorchArchive& rank : ranks_) mappings.push_back(states(rank).find("param_slice_mappings"));
    for (size_t g = 0; g < shapes_.size(); ++g) INVAR_TRY(join_group(g, ranks, mappings));
    return {};
  }

  Status join_group(size_t g, const std::vector<std::vector<Run>>& ranks, const std::vector<PickleValue>& mappings) {
    int64_t available = 0, offset = 0;
    bool mapped = true;
    for (size_t r = 0; r < ranks.size(); ++r) {
      available += ranks[r][g].count;
      mapped = mapped && mappings[r].item(g).is(PickleKind::kDict);
    }
    std::vector<Entries> fragments;
    for (size_t r = 0; mapped && r < ranks.size(); ++r) fragments.push_back(entries_of(mappings[r].item(g)));
    for (const auto& [name, shape] : shapes_[g]) {
      INVAR_ASSIGN(const int64_t count, elements(name, shape));
      std::vector<StoredBox> runs;
      int64_t at = 0, rank_begin = 0;
      for (size_t r = 0; r < ranks.size(); ++r) {
        const Run& rank = ranks[r][g];
        int64_t first = std::max<int64_t>(0, offset - rank_begin);
        int64_t n = std::min(count - at, rank.count - std::min(first, rank.count));
        if (mapped) {
          const auto fragment = fragments[r].find(name);
          const bool here = fragment != fragments[r].end();
          first = here ? fragment->second.find("start").integer().value_or(-1) : 0;
          n = here ? fragment->second.find("numel").integer().value_or(-1) : 0;
          if (first < 0 || n < 0 || first > rank.count || n > rank.count - first || n > count - at) {
            return bad("deepspeed.bad_partition",
                       cat("the part of tensor ", in_quotes(name), " on rank ", r, " leaves its partition"));
          }
        }
        if (n > 0) runs.push_back(rank.part(first, n, at));
        at += std::max<int64_t>(0, n);
        rank_begin += rank.count;
      }
      if (count > available - offset && !mapped) at = -1;
      if (at != count) {
        return bad("deepspeed.bad_partition",
                   cat("tensor ", in_quotes(name), " of shape ", shape_text(shape), " is not whole in the partitions"));
      }
      offset += count;
      INVAR_TRY(add(name, DType::kF32, shape, std::move(runs)));
    }
    // Writers pad to twice the number of ranks, once the whole and once each part.
    const auto align = static_cast<int64_t>(2 * ranks.size());
    if (!mapped && (offset + align - 1) / align != (available + align - 1) / align) {
      return bad("deepspeed.bad_partition",
                 cat("the parameters have ", offset, " elements, the partitions ", available, ": a file is damaged"));
    }
    return {};
  }

  // Stage 3: every parameter is cut into equal parts, the last one padded; a rank's parts follow each other over its
  // groups.
  Status join_stage3() {
    const auto world = static_cast<int64_t>(ranks_.size());
    std::vector<std::vector<Run>> ranks;
    std::vector<std::vector<int64_t>> ends;  // where each run ends, in elements of the rank
    for (size_t r = 0; r < ranks_.size(); ++r) {
      INVAR_ASSIGN(auto runs, flat_groups(r, "fp32_flat_groups"));
      int64_t end = 0;
      ends.emplace_back();
      for (const Run& run : runs) ends.back().push_back(end += run.count);
      ranks.push_back(std::move(runs));
    }
    int64_t offset = 0;
    for (const Shapes& shapes : shapes_) {
      for (const auto& [name, shape] : shapes) {
        INVAR_ASSIGN(const int64_t count, elements(name, shape));
        const int64_t part = count / world + (count % world != 0);
        std::vector<StoredBox> runs;
        for (int64_t r = 0; r < world; ++r) {
          const int64_t begin = std::min(count, r * part), n = std::min(part, count - begin);
          const auto rank = static_cast<size_t>(r);
          if (!collect(ranks[rank], ends[rank], offset, n, begin, &runs)) {
            return bad("deepspeed.bad_partition",
                       cat("the part of tensor ", in_quotes(name), " on rank ", r, " leaves its partition"));
          }
        }
        offset += part;
        INVAR_TRY(add(name, DType::kF32, shape, std::move(runs)));
      }
    }
    for (const auto& rank : ends) {
      const int64_t available = rank.empty() ? 0 : rank.back();
      if (available == offset) continue;
      return bad("deepspeed.bad_partition", cat("the parts of the parameters have ", offset, " elements, a partition ",
                                                available, ": a file is damaged"));
    }
    return {};
  }

  // Elements [first, first + n) of the runs seen as one, which lie at `at` of the tensor. False when they are too
  // short.
  static bool collect(const std::vector<Run>& runs, const std::vector<int64_t>& ends, int64_t first, int64_t n,
                      int64_t at, std::vector<StoredBox>* out) {
    auto r = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), first) - ends.begin());
    for (; n > 0 && r < runs.size(); ++r) {
      const int64_t skip = first - (ends[r] - runs[r].count), here = std::min(n, runs[r].count - skip);
      if (here > 0) out->push_back(runs[r].part(skip, here, at));
      at += here;
      n -= here;
      first += here;
    }
    return n == 0;
  }

  // Parameters that were not trained: whole in stages 1 and 2, in parts on every rank in stage 3.
  Status join_frozen() {
    const PickleValue shapes = models_[0].root().find("frozen_param_shapes");
    std::vector<Entries> fragments;
    for (const TorchArchive& model : models_) {
      fragments.push_back(entries_of(model.root().find("frozen_param_fragments")));
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (shapes.key(i).text().size() > kLongestName) return bad("deepspeed.bad_partition", "a name is too long");
      const std::string name(shapes.key(i).text());
      const auto shape = shapes.value(i).sizes();
      if (!shape) return bad("deepspeed.bad_partition", cat("tensor ", in_quotes(name), " has no shape"));
      INVAR_ASSIGN(const int64_t count, elements(name, *shape));
      std::vector<StoredBox> runs;
      DType dtype = DType::kUnspecified;
      int64_t at = 0;
      for (size_t r = 0; r < (stage_ == 3 ? models_.size() : 1) && at < count; ++r) {
        const PickleValue fragment = value_or_none(fragments[r], name, models_[r].root());
        INVAR_ASSIGN(const Run run, run_of(models_[r], fragment, name));
        if (r > 0 && run.dtype != dtype)
          return bad("deepspeed.bad_partition", cat(in_quotes(name), " changes its dtype"));
        dtype = run.dtype;
        const int64_t n = std::min(count - at, run.count);
        if (n > 0) runs.push_back(run.part(0, n, at));
        at += n;
      }
      if (at != count) return bad("deepspeed.bad_partition", cat("tensor ", in_quotes(name), " is not whole"));
      INVAR_TRY(add(name, dtype == DType::kUnspecified ? DType::kF32 : dtype, *shape, std::move(runs)));
    }
    return {};
  }

  Status read_buffers() {
    const PickleValue names = models_[0].root().find("buffer_names");
    const Entries module = entries_of(models_[0].root().find("module"));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names.item(i).text().size() > kLongestName) return bad("deepspeed.bad_partition", "a name is too long");
      const std::string name(names.item(i).text());
      INVAR_ASSIGN(auto tensor, models_[0].tensor(value_or_none(module, name, names), name));
      if (!tensor) return bad("deepspeed.bad_partition", cat("buffer ", in_quotes(name), " is missing"));
      INVAR_TRY(made_->add({name, tensor->dtype, tensor->shape}, {tensor->box}));
    }
    return {};
  }

  // A run without ZeRO has no partitions: the model's own weights are all there is.
  Status read_module() {
    const PickleValue module = models_[0].root().find("module");
    for (size_t i = 0; i < module.size(); ++i) {
      const std::string name(module.key(i).text());
      INVAR_ASSIGN(auto tensor, models_[0].tensor(module.value(i), name));
      if (tensor) INVAR_TRY(made_->add({name, tensor->dtype, tensor->shape}, {tensor->box}));
    }
    made_->find("no_masters", cat(folder_, ": has no partitions of master weights; the working weights were read"));
    return {};
  }

  // Tied parameters are stored once, under the other name.
  Status read_shared() {
    if (ranks_.empty()) return {};  // the module names both
    const PickleValue shared = models_[0].root().find("shared_params");
    for (size_t i = 0; i < shared.size(); ++i) {
      if (shared.key(i).text().size() > kLongestName || shared.value(i).text().size() > kLongestName) continue;
      const auto original = flat_.find(std::string(shared.value(i).text()));
      if (original == flat_.end() || flat_.count(std::string(shared.key(i).text())) != 0) continue;
      const Flat& same = original->second;
      INVAR_TRY(made_->add_flat({std::string(shared.key(i).text()), same.dtype, same.shape}, same.runs));
    }
    return {};
  }

  struct Flat {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<StoredBox> runs;
  };

  FileSystem& system_;
  std::string folder_;
  const ContainerLimits& limits_;
  std::unique_ptr<PiecesFile> made_;
  std::vector<TorchArchive> ranks_, models_;
  int64_t stage_ = 0;
  std::vector<Shapes> shapes_;  // of each group
  std::map<std::string, Flat> flat_;
};

}  // namespace

Result<std::string> follow_tag(FileSystem& files, const std::string& folder, std::string_view pointer) {
  const std::string path = join_path(folder, pointer);
  if (!files.exists(path)) return folder;
  INVAR_ASSIGN(std::string tag, read_text(files, path, 4096));
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
  if (tag.empty() || tag == "." || tag == ".." || tag.find_first_of(std::string_view("/\\\0", 3)) != tag.npos) {
    return Error(Code::kDataLoss, "index.unsafe_path",
                 cat(path, ": names the folder ", in_quotes(tag), "; only a folder beside it is followed"));
  }
  const std::string inside = join_path(folder, tag);
  return files.is_directory(inside) ? inside : folder;
}

Result<std::string> find_deepspeed(FileSystem& files, const std::string& folder) {
  INVAR_ASSIGN(const std::string inside, follow_tag(files, folder, "latest"));
  INVAR_ASSIGN(const auto entries, files.list(inside));
  const bool found = std::any_of(entries.begin(), entries.end(), [](const DirEntry& entry) {
    return entry.name.ends_with(kModelStates) || entry.name.ends_with(kOptimStates);
  });
  return found ? inside : std::string();
}

Result<std::unique_ptr<WeightFile>> open_deepspeed(FileSystem& files, const std::string& folder,
                                                   const ContainerLimits& limits, int file_index) {
  return ZeroReader(files, folder, limits, file_index).run();
}

}  // namespace invar
