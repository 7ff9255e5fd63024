#ifndef DDPRUN_RENDEZVOUS_JOURNAL_SQLITE_JOURNAL_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_SQLITE_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/journal_file.h"

namespace ddprun::rendezvous {

// Writes to a JournalFile on a thread of its own, in the order of the calls. Threads: the loop's.
class JournalWriter {
 public:
  // Params: answer: called on the writer's thread with each number and its result; patience: how
  // long the destructor waits for the disk. Errors: RESOURCE_EXHAUSTED: no further thread is
  // possible.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Start(
      std::unique_ptr<JournalFile> file, std::function<void(uint64_t, absl::Status)> answer,
      absl::Duration patience);
  // Waits for the remaining work, at most for `patience`. If the disk still hangs then, the rest is
  // left to the thread, and may be lost with the process.
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  void Put(uint64_t number, DatedRecord record);
  // Drops a record. Errors go to the log.
  void Drop(std::string run_id);
  // Drops a record with an answer. If the file can't be changed, the whole file is removed.
  void Retract(uint64_t number, std::string run_id);
  // Runs `call` on the thread; for tests of a slow disk.
  void Call(std::function<void()> call);

 private:
  struct Shared;

  JournalWriter(std::shared_ptr<Shared> shared, absl::Duration patience)
      : shared_(std::move(shared)), patience_(patience) {}
  static void Work(Shared* shared);

  const std::shared_ptr<Shared> shared_;  // also the thread's
  const absl::Duration patience_;
  std::thread thread_;
};

// Keeps jobs in <folder>/journal.db. The first error is permanent: every later write is answered
// with it. If a job can't be retracted alone because the disk fails, all jobs are. Threads: the
// loop's; another thread waits for the disk.
class SqliteJournal final : public Journal {
 public:
  struct Options {
    // Records survive a crash of the machine, at the price of waiting for the disk (fsync(2)).
    bool outlives_machine = false;
    absl::Duration patience = absl::Seconds(5);  // for one Write or Retract; above zero
    // Another service has taken the folder over, so this one has to end. Later writes get no
    // answer.
    std::function<void(absl::Status)> on_taken_over;
    std::string vfs;  // as JournalFile::Open
  };
  struct Loaded {
    std::vector<KeptJob> jobs;  // by run id
    std::vector<DamagedRecord> damaged;
  };

  // `loop` outlives the journal. Errors: as JournalFile::Open.
  static absl::StatusOr<std::unique_ptr<SqliteJournal>> Open(EventLoop* loop,
                                                             const std::string& folder,
                                                             Options options);
  // Writes that are not answered by then never are.
  ~SqliteJournal() override;

  // Reads all records, and records that this service has read them before it returns: no two
  // services have the same `life`. Requires: no Write or Forget before. Errors: DATA_LOSS: the
  // whole file is damaged; the text says how, and what to do. Else as JournalFile::Put.
  absl::StatusOr<Loaded> Load();
  // As JournalFile::SetAside. Requires: as Load.
  absl::Status SetAside(const DamagedRecord& damaged);

  bool keeps() const override { return true; }
  // Errors: DEADLINE_EXCEEDED: the patience is over. Else as JournalFile::Put.
  void Write(const std::string& run_id, JobRecord record,
             std::function<void(absl::Status)> done) override;
  void Forget(const std::string& run_id) override;
  // Errors: DEADLINE_EXCEEDED: the patience is over. Else as JournalFile::Remove.
  void Retract(const std::string& run_id, std::function<void(absl::Status)> done) override;
  std::string where() const override { return path_; }

  // Runs `call` on the journal's thread before the next write; for tests of a slow disk.
  void CallOnDisk(std::function<void()> call) { writer_->Call(std::move(call)); }

 private:
  struct Waiting {
    bool retracts = false;  // false: it is a Write
    Instant since;
    std::function<void(absl::Status)> done;
  };

  SqliteJournal(EventLoop* loop, Options options, JournalFile* file);
  absl::Status StartWriter(std::unique_ptr<JournalFile> file);
  uint64_t Await(bool retracts, std::function<void(absl::Status)> done);
  void RemoveAside(uint64_t number);
  void OnAnswer(uint64_t number, const absl::Status& status);
  void YieldTo(const absl::Status& other);
  void OnPatienceOver();
  void Break(absl::Status status);
  void ArmPatience();

  EventLoop* const loop_;
  const Options options_;
  const std::string path_;
  const std::string boot_;
  const std::shared_ptr<LoopInbox> inbox_;
  JournalFile* file_;  // the writer's; used only by Load(), before there are tasks
  std::unique_ptr<JournalWriter> writer_;
  bool used_ = false;        // there were tasks
  bool taken_over_ = false;  // by another service
  uint64_t next_number_ = 1;
  std::map<uint64_t, Waiting> waiting_;  // by number, so the longest wait is first
  absl::Status broken_;                  // the first error
  bool hangs_ = false;                   // broken_ is that the disk didn't answer
  Timer patience_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_SQLITE_JOURNAL_H_
