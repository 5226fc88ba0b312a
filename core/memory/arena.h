// One block of memory for a whole pass, planned before the first one.
//
//   Arena arena;
//   INVAR_ASSIGN(int train, arena.plan("train", [&] { return run_pass(arena); }));   // records, touches no memory
//   arena.bind(buffer.data());                                                      // arena.bytes() of it
//   INVAR_TRY(arena.begin(train)); ... run_pass(arena) ...; INVAR_TRY(arena.end());
//
// A pass acquires named blocks and releases them when their handle dies. Planning runs the same code once with
// planning() true, when it must not touch memory; the recorded lifetimes decide where each block lies, so that blocks
// that never live together share bytes. Invariant: every later pass makes the same acquisitions and releases in the
// same order with no block larger than planned; the first difference is an error (memory.plan_broken), never an
// overlap. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace invar {

class Arena;

// A piece of the arena; released when destroyed.
class ArenaBlock {
 public:
  ArenaBlock() = default;
  ArenaBlock(ArenaBlock&& other) noexcept { *this = std::move(other); }
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ~ArenaBlock() { release(); }

  void* data() const { return data_; }
  bool empty() const { return arena_ == nullptr; }
  void release();

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  int32_t slot_ = -1;
  uint32_t pass_ = 0;
};

class Arena {
 public:
  static constexpr int64_t kAlignment = 64;

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Records `pass` and returns the program's number. Blocks still held when `pass` returns live to its end.
  Result<int> plan(std::string name, const std::function<Status()>& pass);
  // The memory that every program needs.
  int64_t bytes() const { return bytes_; }
  // `memory`: bytes() of it, aligned to kAlignment. After the last plan().
  void bind(void* memory) { base_ = static_cast<std::byte*>(memory); }
  // Fills released blocks with 0xFF (not-a-number in every float format): a test's way to catch late readers.
  void poison_released(bool on) { poison_ = on; }

  Status begin(int program);
  Status end();
  bool planning() const { return planning_; }
  Result<ArenaBlock> acquire(std::string_view name, int64_t bytes);

  // What was planned: bytes of the program and of all its blocks if none shared.
  struct Report {
    std::string name;
    int64_t bytes = 0, unshared_bytes = 0, blocks = 0;
  };
  std::vector<Report> reports() const;

 private:
  friend class ArenaBlock;
  struct Slot {
    std::string name;
    int64_t bytes = 0;
    int32_t acquired = 0, released = 0;  // event numbers
    int64_t offset = 0;
  };
  struct Program {
    std::string name;
    std::vector<Slot> slots;      // in the order of acquisition
    std::vector<int32_t> events;  // slot + 1: acquired; -(slot + 1): released
    int64_t bytes = 0;
  };

  static void place(Program& program);
  void release(ArenaBlock& block);
  Status broken(std::string message);

  std::vector<Program> programs_;
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  bool planning_ = false, poison_ = false;
  int current_ = -1;  // program that runs
  size_t next_event_ = 0;
  uint32_t pass_ = 0;  // blocks of an abandoned pass are ignored
  Status failure_;
};

}  // namespace invar
