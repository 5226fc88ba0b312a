#include "core/checkpoint/training_state.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "core/checkpoint/parallel_chunks.h"

namespace invar {
namespace {

constexpr std::string_view kManifest = "training/manifest.json";
constexpr int64_t kManifestBytes = 1 << 30;
constexpr int64_t kChunkBytes = 4 << 20;

// One XXH3 state, fed piecewise. Allocation may fail; then the hash is wrong, never the program.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

// A folder of a run that may be a checkpoint: "step-00000012", or with ".new" or ".old" after a kill in mid-replace.
struct StepFolder {
  int64_t step = 0;
  std::string suffix;
  std::string name;
};

std::optional<StepFolder> parse_step(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  StepFolder folder;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, folder.step);
  if (error != std::errc() || stop - begin < 8 || folder.step < 0) return std::nullopt;
  folder.suffix.assign(stop, end);
  folder.name = name;
  return folder;
}

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

bool is_checkpoint(FileSystem& files, const std::string& folder) { return files.exists(join_path(folder, kManifest)); }

// What the folders of a run are, ordered from the last saved to the first. Unreadable ones are left out.
struct Saved {
  StepFolder folder;
  std::string path;
  int64_t sequence = 0;
};

std::vector<Saved> saved_in(FileSystem& files, const std::string& run_folder) {
  std::vector<Saved> found;
  const auto entries = files.list(run_folder);
  if (!entries.ok()) return found;
  for (const DirEntry& entry : *entries) {
    const auto folder = parse_step(entry.name);
    if (!entry.is_directory || !folder ||
        (!folder->suffix.empty() && folder->suffix != ".new" && folder->suffix != ".old")) {
      continue;
    }
    const std::string path = join_path(run_folder, entry.name);
    const auto text = read_text(files, join_path(path, kManifest), kManifestBytes);
    if (!text.ok()) continue;
    const auto stored = read_manifest(*text, join_path(path, kManifest));
    if (stored.ok()) found.push_back({*folder, path, stored->sequence});
  }
  std::sort(found.begin(), found.end(), [](const Saved& a, const Saved& b) { return a.sequence > b.sequence; });
  return found;
}

// Puts right what a killed writer left: a finished replacement gets its name, what it replaced goes.
Status repair(FileSystem& files, const std::string& run_folder) {
  if (!files.is_directory(run_folder)) return {};
  INVAR_ASSIGN(const auto entries, files.list(run_folder));
  for (const std::string_view suffix : {".new", ".old", ".removing", ".partial", ".new.partial"}) {
    for (const DirEntry& entry : entries) {
      const auto folder = parse_step(entry.name);
      if (!entry.is_directory || !folder || folder->suffix != suffix) continue;
      const std::string path = join_path(run_folder, entry.name);
      const std::string final_path = join_path(run_folder, step_name(folder->step));
      const bool may_stand_in = suffix == ".new" || suffix == ".old";
      if (may_stand_in && is_checkpoint(files, path) && !files.exists(final_path)) {
        INVAR_TRY(files.rename(path, final_path));
      } else {
        INVAR_TRY(files.remove_all(path));
      }
    }
  }
  return {};
}

bool is_kind(std::string_view kind) {
  return !kind.empty() && kind.size() <= 64 &&
         kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// The files of training/ for one kind of state.
struct KindFile {
  std::string kind;
  std::vector<TensorSpec> specs;
};

class StateWriter {
 public:
  StateWriter(FileSystem& files, const TrainingSnapshot& snapshot, const TrainingSaveOptions& options)
      : files_(files), snapshot_(snapshot), options_(options) {}

  // Writes everything into `folder`, which exists and is empty.
  Status run(const std::string& folder, int64_t sequence) {
    INVAR_TRY(plan());
    INVAR_TRY(files_.make_directories(join_path(folder, "training")));
    INVAR_ASSIGN(model_plan_, write_model_files(files_, folder, snapshot_.model, options_.write));
    INVAR_TRY(place_model_pieces());
    INVAR_TRY(write_pieces(folder));
    StoredManifest stored{snapshot_.manifest, sequence, records_};
    INVAR_TRY(check_pieces(stored.pieces, folder));
    INVAR_ASSIGN(const std::string text, write_manifest(stored));
    INVAR_TRY(write_side_files(files_, {{std::string(kManifest), text, ""}}, files_, folder, options_.write.durable));
    return files_.sync_directory(join_path(folder, "training"));
  }

 private:
  Status plan() {
    for (const StatePiece& piece : snapshot_.pieces) {
      if (!is_kind(piece.kind)) {
        return Error(Code::kInvalidArgument, "training.bad_pieces",
                     cat("kind ", in_quotes(piece.kind), " of ", in_quotes(piece.parameter),
                         " is not a word of lower-case letters, digits and \"_\""));
      }
      PieceRecord record{piece.parameter, piece.kind, piece.dtype, piece.shape, piece.first, piece.count, "", "", 0};
      if (piece.data != nullptr) {
        const bool whole = piece.first == 0 && piece.count == element_count(piece.shape);
        record.file = cat("training/", piece.kind, ".safetensors");
        record.entry = whole ? piece.parameter : cat(piece.parameter, "@", piece.first);
        kind_of(piece.kind)
            .specs.push_back({record.entry, piece.dtype, whole ? piece.shape : std::vector<int64_t>{piece.count}});
      }
      records_.push_back(std::move(record));
    }
    std::vector<PieceRecord> sorted = records_;
    const Status covered = check_pieces(sorted, "the state to be saved");
    return covered.ok() ? covered : Error(Code::kInvalidArgument, covered.reason(), covered.message());
  }

  KindFile& kind_of(const std::string& kind) {
    const auto it = std::find_if(kinds_.begin(), kinds_.end(), [&](const KindFile& file) { return file.kind == kind; });
    if (it != kinds_.end()) return *it;
    kinds_.push_back({kind, {}});
    return kinds_.back();
  }

  // Pieces without data: the model's files hold them.
  Status place_model_pieces() {
    for (size_t i = 0; i < records_.size(); ++i) {
      if (snapshot_.pieces[i].data != nullptr) continue;
      PieceRecord& record = records_[i];
      for (const Shard& shard : model_plan_.shards) {
        for (const TensorSpec& tensor : shard.tensors) {
          if (tensor.name != record.parameter || tensor.dtype != record.dtype || tensor.shape != record.shape) continue;
          record.file = shard.file_name;
          record.entry = tensor.name;
        }
      }
      if (record.file.empty() || record.first != 0 || record.count != element_count(record.shape)) {
        return Error(
            Code::kInvalidArgument, "training.bad_pieces",
            cat(record.kind, " of ", in_quotes(record.parameter), " has no data and the model does not store it as ",
                name_of(record.dtype), " ", shape_text(record.shape)));
      }
    }
    return {};
  }

  Status write_pieces(const std::string& folder) {
    std::vector<SafetensorsWriter> writers;
    for (KindFile& kind : kinds_) {
      const std::string path = join_path(folder, cat("training/", kind.kind, ".safetensors"));
      INVAR_ASSIGN(auto writer, SafetensorsWriter::create(files_, path, kind.specs));
      INVAR_TRY(writer.reserve());
      writers.push_back(std::move(writer));
    }
    INVAR_TRY(run_chunks(options_.write.pool, options_.write.cancel, static_cast<int64_t>(records_.size()),
                         [&](int64_t item, int) -> Status {
                           const StatePiece& piece = snapshot_.pieces[static_cast<size_t>(item)];
                           PieceRecord& record = records_[static_cast<size_t>(item)];
                           return piece.data == nullptr ? hash_model_piece(folder, record)
                                                        : write_piece(writers, piece, record);
                         }));
    for (SafetensorsWriter& writer : writers) INVAR_TRY(writer.close(options_.write.durable));
    return {};
  }

  Status write_piece(std::vector<SafetensorsWriter>& writers, const StatePiece& piece, PieceRecord& record) {
    size_t number = 0;
    while (kinds_[number].kind != piece.kind) ++number;
    const TensorInfo* entry = writers[number].find(record.entry);
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(piece.data),
                                           static_cast<size_t>(bytes_of(piece.dtype, piece.count)));
    Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
      INVAR_TRY(check_cancel(options_.write.cancel));
      const auto chunk = bytes.subspan(at, std::min<size_t>(kChunkBytes, bytes.size() - at));
      hasher.add(chunk);
      INVAR_TRY(writers[number].write(*entry, static_cast<int64_t>(at), chunk));
    }
    record.hash = hasher.value();
    return {};
  }

  Status hash_model_piece(const std::string& folder, PieceRecord& record) {
    INVAR_ASSIGN(const auto file, SafetensorsFile::open(files_, join_path(folder, record.file)));
    const TensorInfo* entry = file.header().find(record.entry);
    Hasher hasher;
    std::vector<std::byte> buffer(static_cast<size_t>(std::min<int64_t>(kChunkBytes, entry->byte_size())));
    for (int64_t at = 0; at < entry->byte_size(); at += kChunkBytes) {
      const auto chunk = std::span(buffer).first(static_cast<size_t>(std::min(kChunkBytes, entry->byte_size() - at)));
      INVAR_TRY(file.read(*entry, at, chunk));
      hasher.add(chunk);
    }
    record.hash = hasher.value();
    return {};
  }

  FileSystem& files_;
  const TrainingSnapshot& snapshot_;
  const TrainingSaveOptions& options_;
  ShardPlan model_plan_;
  std::vector<PieceRecord> records_;  // one for each of snapshot_.pieces, in their order
  std::vector<KindFile> kinds_;
};

}  // namespace

Result<SavedCheckpoint> save_training_checkpoint(FileSystem& files, const std::string& run_folder,
                                                 const TrainingSnapshot& snapshot, const TrainingSaveOptions& options) {
  if (snapshot.manifest.step < 0) {
    return Error(Code::kInvalidArgument, "training.bad_step", cat("step ", snapshot.manifest.step, " is negative"));
  }
  INVAR_TRY(repair(files, run_folder));
  const std::vector<Saved> before = saved_in(files, run_folder);
  const int64_t sequence = before.empty() ? 1 : before.front().sequence + 1;
  SavedCheckpoint saved;
  saved.path = join_path(run_folder, step_name(snapshot.manifest.step));
  const bool replaces = files.exists(saved.path);

  {
    INVAR_ASSIGN(auto staged, StagedDirectory::create(files, replaces ? saved.path + ".new" : saved.path));
    INVAR_TRY(StateWriter(files, snapshot, options).run(staged.path(), sequence));
    INVAR_TRY(staged.commit());
  }
  if (replaces) {
    // From here on a kill leaves two complete checkpoints of this step; repair() and newest know both.
    const std::string old = saved.path + ".old";
    INVAR_TRY(files.rename(saved.path, old));
    INVAR_TRY(files.rename(saved.path + ".new", saved.path));
    INVAR_TRY(files.sync_directory(run_folder));
    INVAR_TRY(files.remove_all(old));
  }

  // The new one is safe: what goes wrong now is worth a line, not the run.
  int64_t kept = 1;
  for (const Saved& older : before) {
    if (options.keep <= 0 || older.path == saved.path) continue;
    if (++kept <= options.keep) continue;
    const std::string removing = older.path + ".removing";
    Status status = files.rename(older.path, removing);
    if (status.ok()) status = files.remove_all(removing);
    if (!status.ok()) saved.findings.push_back({"training.not_removed", status.message()});
  }
  return saved;
}

Status save_training_checkpoint_as(FileSystem& files, const std::string& target, const TrainingSnapshot& snapshot,
                                   const ModelWriteOptions& write) {
  INVAR_ASSIGN(auto staged, StagedDirectory::create(files, target));
  INVAR_TRY(StateWriter(files, snapshot, {.keep = 0, .write = write}).run(staged.path(), 1));
  return staged.commit();
}

Result<std::string> newest_training_checkpoint(FileSystem& files, const std::string& path) {
  if (is_checkpoint(files, path)) return path;
  const std::vector<Saved> saved = saved_in(files, path);
  if (!saved.empty()) return saved.front().path;
  return Error(Code::kNotFound, "training.no_checkpoint",
               cat(path, files.exists(path) ? ": holds no training checkpoint (no training/manifest.json, no readable "
                                              "step-NNNNNNNN folder)"
                                            : ": no such folder"));
}

Result<TrainingCheckpoint> TrainingCheckpoint::open(FileSystem& files, const std::string& folder) {
  TrainingCheckpoint checkpoint;
  checkpoint.path_ = folder;
  const std::string manifest_path = join_path(folder, kManifest);
  INVAR_ASSIGN(const std::string text, read_text(files, manifest_path, kManifestBytes));
  INVAR_ASSIGN(checkpoint.stored_, read_manifest(text, manifest_path));
  auto& names = checkpoint.file_of_;
  for (const PieceRecord& piece : checkpoint.stored_.pieces) names.emplace_back(piece.file, 0);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (auto& [name, index] : names) {
    index = checkpoint.files_.size();
    INVAR_ASSIGN(auto file, SafetensorsFile::open(files, join_path(folder, name)));
    checkpoint.files_.push_back(std::move(file));
  }
  for (const PieceRecord& piece : checkpoint.stored_.pieces) {
    const auto it = std::lower_bound(names.begin(), names.end(), std::pair<std::string, size_t>(piece.file, 0));
    const SafetensorsFile& file = checkpoint.files_[it->second];
    const TensorInfo* entry = file.header().find(piece.entry);
    if (entry == nullptr || entry->dtype != piece.dtype || element_count(entry->shape) != piece.count) {
      return Error(Code::kDataLoss, "training.damaged",
                   cat(file.path(), ": ", in_quotes(piece.entry),
                       entry == nullptr ? " is missing" : " is another tensor", "; the manifest says ", piece.kind,
                       " of ", in_quotes(piece.parameter), ", ", piece.count, " elements of ", name_of(piece.dtype)));
    }
  }
  return checkpoint;
}

const PieceRecord* TrainingCheckpoint::find(std::string_view parameter, std::string_view kind) const {
  const auto it = std::lower_bound(stored_.pieces.begin(), stored_.pieces.end(), parameter,
                                   [&](const PieceRecord& piece, std::string_view name) {
                                     return piece.parameter != name ? piece.parameter < name : piece.kind < kind;
                                   });
  const bool found = it != stored_.pieces.end() && it->parameter == parameter && it->kind == kind;
  return found ? &*it : nullptr;
}

Status TrainingCheckpoint::read(std::string_view parameter, std::string_view kind, int64_t first, DType dtype,
                                std::span<std::byte> out) const {
  const PieceRecord* piece = find(parameter, kind);
  if (piece == nullptr || piece->dtype != dtype) {
    return Error(Code::kNotFound, "training.no_state",
                 cat(path_, ": holds no ", kind, " of ", in_quotes(parameter), " as ", name_of(dtype),
                     piece == nullptr ? std::string() : cat("; it is stored as ", name_of(piece->dtype))));
  }
  const int64_t width = bytes_of(dtype, 1), total = element_count(piece->shape);
  const auto count = static_cast<int64_t>(out.size()) / width;
  if (count * width != static_cast<int64_t>(out.size()) || first < 0 || first > total || count > total - first) {
    return Error(Code::kOutOfRange, "tensor.out_of_range",
                 cat(path_, ": ", kind, " of ", in_quotes(parameter), " has ", total, " elements of ", width,
                     " bytes; ", out.size(), " bytes were asked for from element ", first));
  }
  // Pieces are sorted and cover the tensor: walk to the first, then on.
  while (piece->first + piece->count <= first && piece->first + piece->count < total) ++piece;
  for (int64_t at = first; at < first + count; ++piece) {
    const int64_t length = std::min(first + count, piece->first + piece->count) - at;
    INVAR_TRY(read_piece(*piece, at - piece->first,
                         out.subspan(static_cast<size_t>((at - first) * width), static_cast<size_t>(length * width))));
    at += length;
  }
  return {};
}

Status TrainingCheckpoint::read_piece(const PieceRecord& piece, int64_t skip, std::span<std::byte> out) const {
  const auto it = std::lower_bound(file_of_.begin(), file_of_.end(), std::pair<std::string, size_t>(piece.file, 0));
  const SafetensorsFile& file = files_[it->second];
  const TensorInfo& entry = *file.header().find(piece.entry);
  INVAR_TRY(file.read(entry, bytes_of(piece.dtype, skip), out));
  if (static_cast<int64_t>(out.size()) != entry.byte_size()) return {};
  if (XXH3_64bits(out.data(), out.size()) == piece.hash) return {};
  return Error(Code::kDataLoss, "training.damaged",
               cat(file.path(), ": ", in_quotes(piece.entry),
                   " does not hold the bytes that were written: its checksum "
                   "differs from the manifest's"));
}

}  // namespace invar
