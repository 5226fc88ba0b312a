#include "core/checkpoint/training_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"
#include "core/numerics/normal.h"

namespace invar {
namespace {

// A run with two parameters; `salt` makes the numbers of one save differ from another's.
struct TinyRun {
  std::vector<float> weight, gain, moment1, moment2;
  TrainingSnapshot snapshot;

  explicit TinyRun(int64_t step, uint64_t salt = 0) {
    const auto fill = [&](std::vector<float>& out, int64_t count, uint64_t stream) {
      out.resize(static_cast<size_t>(count));
      for (size_t i = 0; i < out.size(); ++i) out[i] = normal_at(static_cast<uint64_t>(step) + salt, stream, i);
    };
    fill(weight, 24, 1);
    fill(gain, 5, 2);
    fill(moment1, 24, 3);
    fill(moment2, 24, 4);
    TrainingManifest& manifest = snapshot.manifest;
    manifest.step = step;
    manifest.counters = {{"tokens", 123456789012}, {"skipped_steps", 2}};
    manifest.values = {{"best_eval_loss", INFINITY}, {"lr", 3e-4}, {"third", 1.0 / 3}};
    manifest.rng = {{"rounding", 0xFFFFFFFFFFFFFFFFull, 7, 99}};
    manifest.data = {{"epoch", 1}, {"index", 17}};
    manifest.states = {{"ladder", R"({"state":2,"loss":[0.1,0.30000000000000004]})"}, {"loss_scaler", "{}"}};
    manifest.recipe = "fp8_block";
    manifest.aliases = {{"lm_head.weight", "w"}};
    manifest.trainable = {"w", "g"};
    manifest.config = R"({"steps":300})";
    snapshot.model.config = "{}";
    snapshot.model.tensors = {tensor_in_memory("w", {6, 4}, DType::kF32, weight.data()),
                              tensor_in_memory("g", {5}, DType::kF32, gain.data())};
    snapshot.model.tensors[0].dtype = DType::kBF16;
    const auto piece = [&](const char* name, const char* kind, std::vector<int64_t> shape, int64_t first, int64_t count,
                           const float* data) {
      snapshot.pieces.push_back({name, kind, DType::kF32, std::move(shape), first, count, data});
    };
    piece("w", "master", {6, 4}, 0, 24, weight.data());
    piece("g", "master", {5}, 0, 5, nullptr);  // F32 in the model itself
    piece("w", "moment1", {6, 4}, 10, 14, moment1.data() + 10);
    piece("w", "moment1", {6, 4}, 0, 10, moment1.data());
    piece("w", "moment2", {6, 4}, 0, 24, moment2.data());
  }
};

std::vector<float> state(const TrainingCheckpoint& checkpoint, const char* name, const char* kind, int64_t first,
                         int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const Status status = checkpoint.read(name, kind, first, DType::kF32, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

// What `text` holds as JSON does not depend on white space.
std::string squeezed(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST(TrainingState, ComesBackAsItWas) {
  MemoryFiles files;
  const TinyRun run(12);
  const auto saved = save_training_checkpoint(files, "/run", run.snapshot, {});
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->path, "/run/step-00000012");
  EXPECT_EQ(*newest_training_checkpoint(files, "/run"), saved->path);
  EXPECT_EQ(*newest_training_checkpoint(files, saved->path), saved->path);
  const auto checkpoint = TrainingCheckpoint::open(files, saved->path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  TrainingManifest read = checkpoint->manifest();
  for (auto& [name, text] : read.states) text = squeezed(text);
  read.config = squeezed(read.config);
  EXPECT_TRUE(read == run.snapshot.manifest);
  EXPECT_EQ(state(*checkpoint, "w", "master", 0, 24), run.weight);
  EXPECT_EQ(state(*checkpoint, "g", "master", 0, 5), run.gain);
  EXPECT_EQ(state(*checkpoint, "w", "moment1", 0, 24), run.moment1);
  EXPECT_EQ(state(*checkpoint, "w", "moment2", 0, 24), run.moment2);
}

TEST(TrainingState, IsReadInAnySharding) {
  MemoryFiles files;
  const TinyRun run(12);
  ASSERT_TRUE(save_training_checkpoint(files, "/run", run.snapshot, {}).ok());
  const auto checkpoint = TrainingCheckpoint::open(files, "/run/step-00000012");
  ASSERT_TRUE(checkpoint.ok());
  for (int64_t first = 0; first <= 24; ++first) {
    for (int64_t count = 0; first + count <= 24; ++count) {
      const std::vector<float> expected(run.moment1.begin() + first, run.moment1.begin() + first + count);
      ASSERT_EQ(state(*checkpoint, "w", "moment1", first, count), expected) << first << " " << count;
    }
  }
}

TEST(TrainingState, LoadsAsAnOrdinaryModel) {
  MemoryFiles files;
  ASSERT_TRUE(save_training_checkpoint(files, "/run", TinyRun(1).snapshot, {}).ok());
  const auto folder = CheckpointFolder::open(files, "/run/step-00000001");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->tensors().size(), 2u);
  EXPECT_EQ(folder->find("w")->dtype, DType::kBF16);
  EXPECT_TRUE(folder->has_side_file("config.json"));
  EXPECT_TRUE(folder->findings().empty());
}

TEST(TrainingState, IsWrittenToAGivenFolderThatIsNew) {
  MemoryFiles files;
  const TinyRun run(7);
  ASSERT_TRUE(save_training_checkpoint_as(files, "/here", run.snapshot, {}).ok());
  const auto checkpoint = TrainingCheckpoint::open(files, "/here");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(state(*checkpoint, "w", "master", 0, 24), run.weight);
  EXPECT_EQ(save_training_checkpoint_as(files, "/here", run.snapshot, {}).reason(), "output.not_empty");
}

TEST(TrainingState, KeepsTheLastOnes) {
  MemoryFiles files;
  TrainingSaveOptions options;
  options.keep = 2;
  for (const int64_t step : {10, 20, 30})
    ASSERT_TRUE(save_training_checkpoint(files, "/run", TinyRun(step).snapshot, options).ok());
  EXPECT_FALSE(files.exists("/run/step-00000010"));
  EXPECT_TRUE(files.exists("/run/step-00000020"));
  // Going back to step 20 and on from there: the newest is the one saved last, not the one with the highest step.
  ASSERT_TRUE(save_training_checkpoint(files, "/run", TinyRun(25).snapshot, options).ok());
  EXPECT_EQ(*newest_training_checkpoint(files, "/run"), "/run/step-00000025");
  EXPECT_TRUE(files.exists("/run/step-00000030"));
  EXPECT_EQ(files.list("/run")->size(), 2u);
  options.keep = 0;
  for (const int64_t step : {26, 27})
    ASSERT_TRUE(save_training_checkpoint(files, "/run", TinyRun(step).snapshot, options).ok());
  EXPECT_EQ(files.list("/run")->size(), 4u);
}

// Kills the writer at every operation in turn: afterwards the newest checkpoint is the old one or the new one, whole,
// and the next save works.
TEST(TrainingState, SurvivesAKillAtEveryWrite) {
  for (const bool replaces : {false, true}) {
    const TinyRun old_run(10), new_run(replaces ? 10 : 20, 1000);
    bool finished = false;
    int64_t old_seen = 0, new_seen = 0;
    for (int64_t fail_at = 0; !finished; ++fail_at) {
      ASSERT_LT(fail_at, 1000);
      MemoryFiles disk;
      TrainingSaveOptions options;
      options.keep = 1;
      ASSERT_TRUE(save_training_checkpoint(disk, "/run", old_run.snapshot, options).ok());
      FaultyFiles files(disk, fail_at, /*stays_dead=*/true);
      const auto saved = save_training_checkpoint(files, "/run", new_run.snapshot, options);
      finished = saved.ok() && saved->findings.empty();

      const auto newest = newest_training_checkpoint(disk, "/run");
      ASSERT_TRUE(newest.ok()) << fail_at << ": " << newest.status().message();
      const auto checkpoint = TrainingCheckpoint::open(disk, *newest);
      ASSERT_TRUE(checkpoint.ok()) << fail_at << ": " << checkpoint.status().message();
      const std::vector<float> weight = state(*checkpoint, "w", "master", 0, 24);
      ASSERT_TRUE(weight == old_run.weight || weight == new_run.weight) << fail_at;
      if (saved.ok()) {
        EXPECT_EQ(weight, new_run.weight);
      }
      ++(weight == new_run.weight ? new_seen : old_seen);
      const TrainingCheckpoint& read = *checkpoint;
      EXPECT_EQ(state(read, "w", "moment2", 0, 24), weight == new_run.weight ? new_run.moment2 : old_run.moment2);

      const TinyRun next(30);
      ASSERT_TRUE(save_training_checkpoint(disk, "/run", next.snapshot, options).ok()) << fail_at;
      EXPECT_EQ(*newest_training_checkpoint(disk, "/run"), "/run/step-00000030");
      EXPECT_EQ(disk.list("/run")->size(), 1u) << fail_at << ": nothing half-written stays";
    }
    EXPECT_GT(old_seen, 10);
    EXPECT_GT(new_seen, 1);
  }
}

TEST(TrainingState, NoticesDamage) {
  MemoryFiles files;
  ASSERT_TRUE(save_training_checkpoint(files, "/run", TinyRun(1).snapshot, {}).ok());
  const std::string path = "/run/step-00000001/training/moment2.safetensors";
  const std::string good = *read_text(files, path, 1 << 20);
  std::string bytes = good;
  bytes.back() ^= 1;
  files.put(path, bytes);
  auto checkpoint = TrainingCheckpoint::open(files, "/run/step-00000001");
  ASSERT_TRUE(checkpoint.ok());
  std::vector<float> values(24);
  const auto out = std::as_writable_bytes(std::span(values));
  EXPECT_EQ(checkpoint->read("w", "moment2", 0, DType::kF32, out).reason(), "training.damaged");
  EXPECT_EQ(checkpoint->read("w", "moment3", 0, DType::kF32, out).reason(), "training.no_state");
  EXPECT_EQ(checkpoint->read("w", "moment2", 0, DType::kBF16, out).reason(), "training.no_state");
  EXPECT_EQ(checkpoint->read("w", "moment2", 1, DType::kF32, out).reason(), "tensor.out_of_range");
  files.put(path, good.substr(0, good.size() - 1));
  EXPECT_EQ(TrainingCheckpoint::open(files, "/run/step-00000001").status().reason(), "safetensors.truncated");
  ASSERT_TRUE(files.remove_all(path).ok());
  EXPECT_EQ(TrainingCheckpoint::open(files, "/run/step-00000001").status().reason(), "file.not_found");
}

TEST(TrainingState, RefusesPiecesThatDoNotCover) {
  const auto reason = [](auto change) {
    TinyRun run(1);
    change(run.snapshot);
    MemoryFiles files;
    const auto saved = save_training_checkpoint(files, "/run", run.snapshot, {});
    EXPECT_FALSE(files.exists("/run/step-00000001"));
    return saved.ok() ? "ok" : saved.status().reason();
  };
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces[2].first = 11; }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces[2].count = 13; }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces[2].count = 15; }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces.pop_back(), s.pieces.pop_back(); }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces[0].kind = "../x"; }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.pieces[0].data = nullptr; }), "training.bad_pieces");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.manifest.states["ladder"] = "[1]"; }), "training.bad_state");
  EXPECT_EQ(reason([](TrainingSnapshot& s) { s.manifest.step = -1; }), "training.bad_step");
}

TEST(TrainingManifest, RefusesWhatItCannotTrust) {
  const std::string good = *write_manifest({});
  ASSERT_TRUE(read_manifest(good, "m").ok()) << read_manifest(good, "m").status().message();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = read_manifest(text, "m");
    return read.ok() ? "ok" : read.status().reason();
  };
  EXPECT_EQ(with("\"format_version\": 1", "\"format_version\": 2"), "training.newer_format");
  EXPECT_EQ(with("\"format_version\": 1", "\"format_version\": \"1\""), "training.bad_manifest");
  EXPECT_EQ(with("invar.training", "other"), "training.bad_manifest");
  EXPECT_EQ(with("\"step\": 0", "\"steps\": 0"), "training.bad_manifest");
  EXPECT_EQ(with("\"step\": 0", "\"step\": 18446744073709551615"), "training.bad_manifest");
  EXPECT_EQ(with("\"counters\": {}", "\"counters\": {\"a\": 0.5}"), "training.bad_manifest");
  EXPECT_EQ(with("\"values\": {}", "\"values\": {\"a\": \"b\"}"), "training.bad_manifest");
  EXPECT_EQ(with("\"rng\": []", "\"rng\": [{\"name\": \"a\"}]"), "training.bad_manifest");
  EXPECT_EQ(with("\"states\": {}", "\"states\": {\"a\": 1}"), "training.bad_manifest");
  const auto piece = [&](const std::string& file, int64_t count) {
    return with("\"pieces\": []",
                cat(R"("pieces": [{"parameter": "w", "kind": "master", "dtype": "F32", "shape": [2],)",
                    R"("first": 0, "count": )", count, R"(, "file": ")", file,
                    R"(", "entry": "w", "xxh3": "0123456789abcdef"}])"));
  };
  EXPECT_EQ(piece("training/a.safetensors", 2), "ok");
  EXPECT_EQ(piece("training/a.safetensors", 1), "training.bad_pieces");
  EXPECT_EQ(piece("../a.safetensors", 2), "training.bad_manifest");
  EXPECT_EQ(piece("training/../a.safetensors", 2), "training.bad_manifest");
  EXPECT_EQ(piece("/etc/passwd", 2), "training.bad_manifest");
  EXPECT_EQ(read_manifest("[]", "m").status().reason(), "training.bad_manifest");
}

TEST(TrainingState, SaysWhereNothingIs) {
  MemoryFiles files;
  EXPECT_EQ(newest_training_checkpoint(files, "/none").status().reason(), "training.no_checkpoint");
  ASSERT_TRUE(files.make_directories("/run/step-00000001").ok());
  EXPECT_EQ(newest_training_checkpoint(files, "/run").status().reason(), "training.no_checkpoint");
}

}  // namespace
}  // namespace invar
