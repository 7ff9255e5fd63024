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

// The thread that waits for the disk: does what it is told in that order. Threads: the loop's.
class JournalWriter {
 public:
  // Params: answer: called on the writer's thread with each number and what it came to;
  // patience: with the disk, at the end.
  // Errors: RESOURCE_EXHAUSTED — there can be no further thread.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Start(
      std::unique_ptr<JournalFile> file, std::function<void(uint64_t, absl::Status)> answer,
      absl::Duration patience);
  // Waits for what is left to do, as long as `patience`. What the disk still holds up then is left
  // to the thread alone, and may be lost with the process.
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  void Put(uint64_t number, DatedRecord record);
  // Its errors go to the log.
  void Drop(std::string run_id);
  // The same with an answer; a file that takes no change is removed whole.
  void Retract(uint64_t number, std::string run_id);
  // Has the thread do this; for tests of a slow disk.
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
