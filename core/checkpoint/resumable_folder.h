// A folder that appears under its final name only when complete, written file by file, where a killed run can go on:
// every finished file leaves a record, and the next run of the same job takes over what was recorded.
//
//   INVAR_ASSIGN(auto staged, ResumableFolder::open(files, "out", fingerprint, /*resume=*/true));
//   if (const std::string* record = staged.finished("model-00001.safetensors")) ...   // of an earlier run
//   INVAR_TRY(staged.record("model-00001.safetensors", bytes));                       // file is whole and closed
//   INVAR_TRY(staged.commit());
//
// Files lie in "<target>.partial", records in "<target>.journal", one file each and written atomically. The journal
// begins with the job's fingerprint (configuration, library version, sizes and times of the sources); a folder with
// another fingerprint is emptied. A commit renames the folder first and then removes the journal: a journal without a
// folder is what a kill between the two leaves, and means nothing.
// Invariant: a record exists only for a file that is complete. Destroyed without commit, everything is removed, unless
// keep() was called: then only a commit or another job ends it.
// Thread rule: one thread.
#pragma once

#include <map>
#include <string>

#include "core/base/file.h"

namespace invar {

class ResumableFolder {
 public:
  // `target` must not exist or be an empty folder ("output.not_empty", "output.not_a_folder").
  static Result<ResumableFolder> open(FileSystem& files, const std::string& target, const std::string& fingerprint,
                                      bool resume);
  ResumableFolder(ResumableFolder&& other) noexcept;
  ResumableFolder& operator=(ResumableFolder&&) = delete;
  ~ResumableFolder();

  const std::string& path() const { return staging_; }
  // The record of a file that an earlier run finished; null when there is none.
  const std::string* finished(const std::string& file) const;
  Status record(const std::string& file, const std::string& bytes);
  // From here on a failure leaves everything for the next run.
  void keep() { keep_ = true; }
  // The same, and no other job may empty the folder ("output.only_copy"): what it was made from is being removed.
  Status keep_at_all_costs();
  Status commit();

  // Where the staging folder and the journal of `target` lie, open or not.
  static std::string staging_of(const std::string& target);
  static std::string journal_of(const std::string& target);
  // Removes a journal whose folder is not there any more.
  static Status discard_stale_journal(FileSystem& files, const std::string& target);

 private:
  ResumableFolder(FileSystem& files, std::string target, std::string staging)
      : files_(&files), target_(std::move(target)), staging_(std::move(staging)) {}
  Status take_over(const std::string& fingerprint, bool* done);

  FileSystem* files_;
  std::string target_, staging_;  // staging_ is empty once committed or moved from
  std::map<std::string, std::string> finished_;
  bool keep_ = false;
};

}  // namespace invar
