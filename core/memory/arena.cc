#include "core/memory/arena.h"

#include <algorithm>
#include <cstring>

namespace invar {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment; }

// Planning hands out addresses that nobody may follow.
void* const kNowhere = reinterpret_cast<void*>(uintptr_t{1} << 20);

}  // namespace

ArenaBlock& ArenaBlock::operator=(ArenaBlock&& other) noexcept {
  if (this == &other) return *this;
  release();
  arena_ = std::exchange(other.arena_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = other.bytes_;
  slot_ = other.slot_;
  pass_ = other.pass_;
  return *this;
}

void ArenaBlock::release() {
  if (arena_ == nullptr) return;
  arena_->release(*this);
  arena_ = nullptr;
  data_ = nullptr;
}

Result<int> Arena::plan(std::string name, const std::function<Status()>& pass) {
  programs_.push_back({});
  programs_.back().name = std::move(name);
  current_ = static_cast<int>(programs_.size()) - 1;
  planning_ = true;
  failure_ = {};
  ++pass_;
  const Status status = pass();
  planning_ = false;
  const int planned = std::exchange(current_, -1);
  ++pass_;
  if (!status.ok()) {
    programs_.pop_back();
    return status;
  }
  Program& program = programs_.back();
  for (Slot& slot : program.slots) {
    if (slot.released < 0) slot.released = static_cast<int32_t>(program.events.size());
  }
  place(program);
  bytes_ = std::max(bytes_, program.bytes);
  return planned;
}

// Largest first, each at the lowest place where nothing placed before lives at the same time.
void Arena::place(Program& program) {
  std::vector<Slot*> order;
  for (Slot& slot : program.slots) order.push_back(&slot);
  std::stable_sort(order.begin(), order.end(), [](const Slot* a, const Slot* b) { return a->bytes > b->bytes; });
  std::vector<const Slot*> placed;  // sorted by offset
  for (Slot* slot : order) {
    int64_t offset = 0;
    for (const Slot* other : placed) {
      const bool together = other->acquired < slot->released && slot->acquired < other->released;
      if (!together) continue;
      if (other->offset - offset >= slot->bytes) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    slot->offset = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), slot,
                                   [](const Slot* a, const Slot* b) { return a->offset < b->offset; }),
                  slot);
    program.bytes = std::max(program.bytes, offset + slot->bytes);
  }
}

Status Arena::begin(int program) {
  if (program < 0 || program >= static_cast<int>(programs_.size())) return broken(cat("there is no program ", program));
  if (base_ == nullptr && bytes_ > 0) return broken("no memory is bound");
  current_ = program;
  next_event_ = 0;
  failure_ = {};
  ++pass_;
  return {};
}

Status Arena::end() {
  if (failure_.ok() && current_ >= 0 && next_event_ != programs_[current_].events.size()) {
    failure_ = broken(cat("ended after ", next_event_, " of ", programs_[current_].events.size(), " events"));
  }
  current_ = -1;
  ++pass_;
  return failure_;
}

Result<ArenaBlock> Arena::acquire(std::string_view name, int64_t bytes) {
  if (current_ < 0) return broken(cat("\"", name, "\" acquired outside a pass"));
  if (!failure_.ok()) return failure_;
  Program& program = programs_[current_];
  const int64_t rounded = round_up(std::max<int64_t>(bytes, 1));
  ArenaBlock block;
  block.arena_ = this;
  block.bytes_ = rounded;
  block.pass_ = pass_;
  if (planning_) {
    block.slot_ = static_cast<int32_t>(program.slots.size());
    block.data_ = kNowhere;
    program.slots.push_back({std::string(name), rounded, static_cast<int32_t>(program.events.size()), -1, 0});
    program.events.push_back(block.slot_ + 1);
    return block;
  }
  const int32_t event = next_event_ < program.events.size() ? program.events[next_event_] : 0;
  const Slot* slot = event > 0 ? &program.slots[event - 1] : nullptr;
  if (slot == nullptr || slot->name != name || rounded > slot->bytes) {
    block.arena_ = nullptr;  // nothing to release
    failure_ = broken(slot == nullptr ? cat("\"", name, "\" acquired where none was planned")
                                      : cat("\"", name, "\" of ", rounded, " bytes acquired where \"", slot->name,
                                            "\" of ", slot->bytes, " was planned"));
    return failure_;
  }
  ++next_event_;
  block.slot_ = event - 1;
  block.data_ = base_ + slot->offset;
  return block;
}

void Arena::release(ArenaBlock& block) {
  if (block.pass_ != pass_ || current_ < 0) return;
  Program& program = programs_[current_];
  if (planning_) {
    program.slots[block.slot_].released = static_cast<int32_t>(program.events.size());
    program.events.push_back(-(block.slot_ + 1));
    return;
  }
  if (poison_) std::memset(block.data_, 0xFF, static_cast<size_t>(block.bytes_));
  if (!failure_.ok()) return;
  if (next_event_ < program.events.size() && program.events[next_event_] == -(block.slot_ + 1)) {
    ++next_event_;
  } else {
    failure_ = broken(cat("\"", program.slots[block.slot_].name, "\" released out of the planned order"));
  }
}

Status Arena::broken(std::string message) {
  const std::string program = current_ >= 0 ? cat("program \"", programs_[current_].name, "\": ") : "";
  return Error(Code::kInternal, "memory.plan_broken", cat("memory plan: ", program, message));
}

std::vector<Arena::Report> Arena::reports() const {
  std::vector<Report> list;
  for (const Program& program : programs_) {
    Report report{program.name, program.bytes, 0, static_cast<int64_t>(program.slots.size())};
    for (const Slot& slot : program.slots) report.unshared_bytes += slot.bytes;
    list.push_back(std::move(report));
  }
  return list;
}

}  // namespace invar
