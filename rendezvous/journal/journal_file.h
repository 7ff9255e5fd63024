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

// One that can't be believed.
struct DamagedRecord {
  int64_t row = 0;     // in the file
  std::string run_id;  // as it stands there
  std::string what;    // "the record of job 'job7' doesn't match its checksum"
  absl::Status why;    // DATA_LOSS: the same with the file, and what to do
};
struct FoundRecords {
  std::vector<DatedRecord> sound;
  std::vector<DamagedRecord> damaged;
};

// Jobs' last records in a file of SQLite's, which no other process can open meanwhile. Where locks
// don't work (a network's file system may have none), who opens it later takes it over: the file
// "journal.db.holder" says whose it is, and is asked before and after each change. Blocking: for a
// thread of its own. Threads: one at a time. Every error names the file; DATA_LOSS: it is damaged.
class JournalFile {
 public:
  // Makes folder (0700) and file (0600) where they are missing.
  // Params: synced: records outlive the machine's end, not only the process'. vfs: SQLite's way to
  // files; "" = its usual one; for tests.
  // Errors: UNAVAILABLE — another process has it; names that. FAILED_PRECONDITION — of a later
  // release, or no journal. DATA_LOSS — damaged. Else of the errno.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& folder, bool synced,
                                                           const std::string& vfs = "");
  // Of a folder whose journal can't be opened as another process has it: whether that was on
  // another machine. Then the file may be free soon: a network's file system takes its time to
  // notice that a machine is gone.
  static bool IsHeldElsewhere(const std::string& folder);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  const std::string& path() const { return path_; }
  // All that are kept, by run id.
  absl::StatusOr<FoundRecords> ReadAll();
  // Keeps its bytes in the table `damaged` alone, so that its job can begin anew.
  absl::Status SetAside(const DamagedRecord& damaged);
  // Makes it the last of its run id. Errors: RESOURCE_EXHAUSTED — the disk is full; NOT_FOUND — the
  // file was taken away; ABORTED — another service has taken the journal over, and this record may
  // be in it all the same.
  absl::Status Put(const DatedRecord& record);
  // Errors: ABORTED — as Put; then nothing was dropped.
  absl::Status Drop(const std::string& run_id);
  // Takes the file away with all that is in it, also while it is open, or hangs: no service can go
  // on from it. Threads: any.
  static absl::Status Remove(const std::string& path);

 private:
  class Statement;

  explicit JournalFile(std::string path) : path_(std::move(path)) {}
  absl::Status Connect(bool synced, const std::string& vfs);
  absl::Status Lock();
  absl::Status CheckFormat();
  absl::Status CheckWhole();
  absl::Status Create();
  static std::string ReadRow(const Statement& row, DatedRecord* read);
  absl::Status Run(const char* sql);
  absl::StatusOr<int64_t> Number(const char* sql);
  absl::Status Prepare(const char* sql, Statement* statement);
  // What SQLite's last call came to.
  absl::Status Error(absl::string_view what, int code) const;
  absl::Status Held() const;
  absl::Status TakeOver();
  absl::Status CheckIsOurs() const;
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  sqlite3* db_ = nullptr;
  std::string holder_;  // what we have written to the holder's file
};

// The machine's boot, as DatedRecord has it; "" = the kernel doesn't tell.
std::string BootId();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_FILE_H_
