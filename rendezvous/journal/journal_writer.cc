#include "rendezvous/journal/journal_writer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/thread.h"

namespace ddprun::rendezvous {

struct JournalWriter::Shared {
  std::unique_ptr<JournalFile> file;  // the thread's
  std::function<void(uint64_t, absl::Status)> answer;

  std::mutex mutex;  // guards the fields below
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool ending = false;  // no further task comes
  bool idle = false;    // the thread has ended
};

absl::StatusOr<std::unique_ptr<JournalWriter>> JournalWriter::Start(
    std::unique_ptr<JournalFile> file, std::function<void(uint64_t, absl::Status)> answer,
    absl::Duration patience) {
  auto shared = std::make_shared<Shared>();
  shared->file = std::move(file);
  shared->answer = std::move(answer);
  std::unique_ptr<JournalWriter> writer(new JournalWriter(shared, patience));
  DDPRUN_ASSIGN_OR_RETURN(writer->thread_,
                          StartThread("the journal", [shared] { Work(shared.get()); }));
  return writer;
}

void JournalWriter::Work(Shared* shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->ending || !shared->tasks.empty(); });
    if (shared->tasks.empty()) break;
    const std::function<void()> task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
  lock.unlock();
  shared->file.reset();  // closing may wait for the disk, too
  lock.lock();
  shared->idle = true;
  shared->changed.notify_all();
}

JournalWriter::~JournalWriter() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  const bool idle = shared_->changed.wait_for(lock, absl::ToChronoNanoseconds(patience_),
                                              [this] { return shared_->idle; });
  lock.unlock();
  idle ? thread_.join() : thread_.detach();
}

void JournalWriter::Call(std::function<void()> call) {
  const std::lock_guard lock(shared_->mutex);
  shared_->tasks.push_back(std::move(call));
  shared_->changed.notify_all();
}

void JournalWriter::Put(uint64_t number, DatedRecord record) {
  Call([shared = shared_.get(), number, record = std::move(record)] {
    shared->answer(number, shared->file->Put(record));
  });
}

void JournalWriter::Retract(uint64_t number, std::string run_id) {
  Call([shared = shared_.get(), number, run_id = std::move(run_id)] {
    JournalFile& file = *shared->file;
    const absl::Status dropped = file.Drop(run_id);
    // A journal that another service has taken over isn't ours to remove.
    const bool settled = dropped.ok() || absl::IsAborted(dropped);
    shared->answer(number, settled ? dropped : JournalFile::Remove(file.path()));
  });
}

void JournalWriter::Drop(std::string run_id) {
  Call([shared = shared_.get(), run_id = std::move(run_id)] {
    const absl::Status status = shared->file->Drop(run_id);
    if (status.ok()) return;
    Log(LogLevel::kWarning,
        absl::StrCat("the record of job ", Quoted(run_id), " can't be dropped: ", status.message(),
                     ". Remove the file before the next service is started"));
  });
}

}  // namespace ddprun::rendezvous
