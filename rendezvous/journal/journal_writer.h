#ifndef DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_WRITER_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_WRITER_H_
