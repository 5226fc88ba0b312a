// Where the time of a step goes: seconds and calls by operation. Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace invar {

class OperationProfile {
 public:
  struct Entry {
    const char* name;  // a literal
    double seconds = 0;
    int64_t calls = 0;
  };

  // Counts its own lifetime; does nothing for a null profile.
  class Timer {
   public:
    Timer(OperationProfile* profile, const char* name) : profile_(profile), name_(name) {
      if (profile_ != nullptr) start_ = std::chrono::steady_clock::now();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() {
      if (profile_ == nullptr) return;
      profile_->add(name_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    }

   private:
    OperationProfile* profile_;
    const char* name_;
    std::chrono::steady_clock::time_point start_;
  };

  void clear() { entries_.clear(); }
  void add(const char* name, double seconds);
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their first call
  double total_seconds() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace invar
