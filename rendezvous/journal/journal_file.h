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

// A record, and the time at which it was made.
struct DatedRecord {
  std::string run_id;
  JobRecord record;
  std::string boot;  // the machine's boot_id, see random(4); "" = unknown
  Instant made;      // CLOCK_MONOTONIC of that boot
};

// A record that can't be believed.
struct DamagedRecord {
  int64_t row = 0;     // its rowid in the table "jobs"
  std::string run_id;  // as the row has it
  std::string what;    // "the record of job 'job7' doesn't match its checksum"
  absl::Status why;    // DATA_LOSS: `what`, the file's name, and what to do
};
struct FoundRecords {
  std::vector<DatedRecord> sound;
  std::vector<DamagedRecord> damaged;
};

// The last record of each job, in a SQLite file that no other process can open meanwhile. If the
// file system has no working locks, a process that opens the file later takes it over: the file
// "journal.db.holder" names the holder, and Put() checks it before and after each write. All calls
// block on the disk, so they need a thread of their own. Threads: one at a time. Errors: each names
// the file; DATA_LOSS: the file is damaged.
class JournalFile {
 public:
  // Creates the folder (0700) and the file (0600) if they are missing.
  // Params: synced: records survive a crash of the machine, not only of the process. vfs: the name
  // of a VFS of SQLite; "" = the default; for tests.
  // Errors: UNAVAILABLE: another process has the file; the text names the process.
  // FAILED_PRECONDITION: the file is of a later release, or no journal. DATA_LOSS: it is damaged.
  // Else the code of the errno.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& folder, bool synced,
                                                           const std::string& vfs = "");
  // Whether the holder of the folder's journal is a process of another machine. The lock may then
  // outlive the machine: a network file system takes a while to notice that a machine is gone.
  // Requires: Open() has failed with UNAVAILABLE.
  static bool IsHeldElsewhere(const std::string& folder);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  const std::string& path() const { return path_; }
  // Returns all records, ordered by run id.
  absl::StatusOr<FoundRecords> ReadAll();
  // Moves the row to the table "damaged", so that its job can start anew.
  absl::Status SetAside(const DamagedRecord& damaged);
  // Replaces the last record of the run id. Errors: RESOURCE_EXHAUSTED: the disk is full.
  // NOT_FOUND: the file was removed. ABORTED: another service has taken the journal over; the
  // record may be in the file all the same.
  absl::Status Put(const DatedRecord& record);
  // Deletes the record of the run id. Errors: ABORTED: as for Put; nothing was deleted.
  absl::Status Drop(const std::string& run_id);
  // Removes the file, even while it is open or its disk hangs, so that no service can resume from
  // it. Threads: any.
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
  // The status for the result `code` of SQLite's last call.
  absl::Status Error(absl::string_view what, int code) const;
  absl::Status Held() const;
  absl::Status TakeOver();
  absl::Status CheckIsOurs() const;
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  sqlite3* db_ = nullptr;
  std::string holder_;  // what we have written to the holder's file
};

// The machine's boot_id, as in DatedRecord; "" = the kernel doesn't have it.
std::string BootId();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_FILE_H_
