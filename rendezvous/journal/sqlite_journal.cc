#include "rendezvous/journal/sqlite_journal.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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

absl::StatusOr<std::unique_ptr<SqliteJournal>> SqliteJournal::Open(EventLoop* loop,
                                                                   const std::string& folder,
                                                                   Options options) {
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<JournalFile> file,
                          JournalFile::Open(folder, options.outlives_machine, options.vfs));
  JournalFile* const opened = file.get();
  std::unique_ptr<SqliteJournal> journal(new SqliteJournal(loop, std::move(options), opened));
  DDPRUN_RETURN_IF_ERROR(journal->StartWriter(std::move(file)));
  return journal;
}

SqliteJournal::SqliteJournal(EventLoop* loop, Options options, JournalFile* file)
    : loop_(loop),
      options_(std::move(options)),
      path_(file->path()),
      boot_(BootId()),
      inbox_(LoopInbox::Create(loop)),
      file_(file),
      patience_(loop, [this] { OnPatienceOver(); }) {}

SqliteJournal::~SqliteJournal() { inbox_->Close(); }

absl::Status SqliteJournal::StartWriter(std::unique_ptr<JournalFile> file) {
  // The thread may outlive the journal, and finds the inbox closed then.
  auto answer = [this, inbox = inbox_](uint64_t number, absl::Status status) {
    inbox->Post([this, number, status = std::move(status)] { OnAnswer(number, status); });
  };
  DDPRUN_ASSIGN_OR_RETURN(
      writer_, JournalWriter::Start(std::move(file), std::move(answer), options_.patience));
  return absl::OkStatus();
}

absl::StatusOr<SqliteJournal::Loaded> SqliteJournal::Load() {
  DDPRUN_CHECK(!used_, "a journal is read before it is written");
  DDPRUN_ASSIGN_OR_RETURN(FoundRecords all, file_->ReadAll());
  Loaded loaded{.jobs = {}, .damaged = std::move(all.damaged)};
  for (DatedRecord& each : all.sound) {
    ++each.record.life;
    DDPRUN_RETURN_IF_ERROR(file_->Put(each));
    const bool same_boot = !boot_.empty() && each.boot == boot_;
    const absl::Duration elapsed = same_boot ? loop_->Now() - each.made : absl::ZeroDuration();
    loaded.jobs.push_back({.run_id = std::move(each.run_id),
                           .record = std::move(each.record),
                           .elapsed = std::max(elapsed, absl::ZeroDuration())});
  }
  return loaded;
}

absl::Status SqliteJournal::SetAside(const DamagedRecord& damaged) {
  DDPRUN_CHECK(!used_, "a journal is read before it is written");
  return file_->SetAside(damaged);
}

void SqliteJournal::Write(const std::string& run_id, JobRecord record,
                          std::function<void(absl::Status)> done) {
  if (taken_over_) return;
  if (!broken_.ok()) return done(broken_);
  const uint64_t number = Await(/*retracts=*/false, std::move(done));
  writer_->Put(number, {.run_id = run_id,
                        .record = std::move(record),
                        .boot = boot_,
                        .made = waiting_[number].since});
}

// Returns the number of the answer.
uint64_t SqliteJournal::Await(bool retracts, std::function<void(absl::Status)> done) {
  used_ = true;
  const uint64_t number = next_number_++;
  waiting_[number] = {.retracts = retracts, .since = loop_->Now(), .done = std::move(done)};
  ArmPatience();
  return number;
}

void SqliteJournal::Forget(const std::string& run_id) {
  if (taken_over_) return;
  used_ = true;
  writer_->Drop(run_id);
}

void SqliteJournal::Retract(const std::string& run_id, std::function<void(absl::Status)> done) {
  if (taken_over_) return;
  const uint64_t number = Await(/*retracts=*/true, std::move(done));
  hangs_ ? RemoveAside(number) : writer_->Retract(number, run_id);
}

// The writer's thread may hang for ever. What it writes into an unlinked file is never read.
void SqliteJournal::RemoveAside(uint64_t number) {
  absl::StatusOr<std::thread> thread =
      StartThread("the end of the journal", [this, number, path = path_, inbox = inbox_] {
        inbox->Post(
            [this, number, removed = JournalFile::Remove(path)] { OnAnswer(number, removed); });
      });
  if (thread.ok()) return thread->detach();
  inbox_->Post([this, number, error = thread.status()] { OnAnswer(number, error); });
}

void SqliteJournal::OnAnswer(uint64_t number, const absl::Status& status) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;  // answered by a timeout before
  if (absl::IsAborted(status)) return YieldTo(status);
  if (!status.ok() && !found->second.retracts) return Break(status);
  const Waiting answered = std::move(found->second);
  waiting_.erase(found);
  ArmPatience();
  answered.done(status);
}

// Drops the waiting calls without an answer: the other service may not have read their records.
void SqliteJournal::YieldTo(const absl::Status& other) {
  taken_over_ = true;
  patience_.Disarm();
  waiting_.clear();
  if (options_.on_taken_over) options_.on_taken_over(other);
}

void SqliteJournal::OnPatienceOver() {
  const absl::Duration taken = loop_->Now() - waiting_.begin()->second.since;
  hangs_ = true;
  Break(absl::DeadlineExceededError(
      absl::StrCat("the journal ", Quoted(path_), " has taken ",
                   absl::FormatDuration(absl::Trunc(taken, absl::Milliseconds(1))),
                   " for a record so far: the disk is slow or hangs")));
}

void SqliteJournal::Break(absl::Status status) {
  if (broken_.ok()) broken_ = status;
  patience_.Disarm();
  // A `done` may write again, or destroy the journal.
  const absl::Status error = std::move(status);
  std::map<uint64_t, Waiting> waiting;
  waiting.swap(waiting_);
  for (const auto& [number, each] : waiting) each.done(error);
}

void SqliteJournal::ArmPatience() {
  patience_.Arm(waiting_.empty() ? Instant::Infinite()
                                 : waiting_.begin()->second.since + options_.patience);
}

}  // namespace ddprun::rendezvous
