#ifndef DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_FILE_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/instant.h"
#include "rendezvous/core/job_record.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ddprun::rendezvous {

// A record, and when it was made.
struct DatedRecord {
  std::string run_id;
  JobRecord record;
  std::string boot;  // of the machine, see boot_id in random(4); "" = unknown
  Instant made;      // CLOCK_MONOTONIC of that boot
};

// Jobs' last records in a file of SQLite's, which no other process can open meanwhile. Blocking:
// for a thread of its own. Threads: one at a time. Every error names the file; DATA_LOSS: it is
// damaged.
class JournalFile {
 public:
  // Makes folder (0700) and file (0600) where they are missing.
  // Params: synced: records outlive the machine's end, not only the process'.
  // Errors: UNAVAILABLE — another process has it; names that. FAILED_PRECONDITION — of a later
  // release, or no journal. DATA_LOSS — damaged. Else of the errno.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& folder, bool synced);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  const std::string& path() const { return path_; }
  // All that are kept, by run id.
  absl::StatusOr<std::vector<DatedRecord>> ReadAll();
  // Makes it the last of its run id. Errors: RESOURCE_EXHAUSTED — the disk is full; NOT_FOUND — the
  // file was taken away.
  absl::Status Put(const DatedRecord& record);
  absl::Status Drop(const std::string& run_id);
  // Takes the file away with all that is in it, also while it is open, or hangs: no service can go
  // on from it. Threads: any.
  static absl::Status Remove(const std::string& path);

 private:
  class Statement;

  explicit JournalFile(std::string path) : path_(std::move(path)) {}
  absl::Status Connect(bool synced);
  absl::Status Lock();
  absl::Status CheckFormat();
  absl::Status CheckWhole();
  absl::Status Create();
  absl::StatusOr<DatedRecord> ReadRow(const Statement& row);
  absl::Status Run(const char* sql);
  absl::StatusOr<int64_t> Number(const char* sql);
  absl::Status Prepare(const char* sql, Statement* statement);
  // What SQLite's last call came to.
  absl::Status Error(absl::string_view what, int code) const;
  absl::Status Held() const;
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  sqlite3* db_ = nullptr;
};

// The machine's boot, as DatedRecord has it; "" = the kernel doesn't tell.
std::string BootId();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_FILE_H_
