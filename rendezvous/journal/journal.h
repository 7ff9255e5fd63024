#ifndef DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// A job as a former service has left it.
struct KeptJob {
  std::string run_id;
  JobRecord record;        // its `life` counts the service that has loaded it, too
  absl::Duration elapsed;  // since it was written; zero = that isn't known
};

// Where a service keeps what must outlive it (R10). Threads: the loop's.
class Journal {
 public:
  virtual ~Journal() = default;

  // Whether it keeps anything: else a record need not be made.
  virtual bool keeps() const = 0;
  // Makes `record` the job's last word, then calls `done` on the loop, once, perhaps before this
  // returns. What the job does next waits for it. Not called again for a job before `done`.
  virtual void Write(const std::string& run_id, JobRecord record,
                     std::function<void(absl::Status)> done) = 0;
  // Drops the job's record: the job is over. Without an answer.
  virtual void Forget(const std::string& run_id) = 0;
  // Drops a record that isn't the job's last word any more: a write has failed, and no service may
  // go on from what is there. `done`: as Write's; an error: it may still be there, and the text
  // says where. What the job does next waits for that, too.
  virtual void Retract(const std::string& run_id, std::function<void(absl::Status)> done) = 0;
  // For people: "/var/lib/ddprun/journal.db"; "" = it keeps nothing.
  virtual std::string where() const = 0;
};

// Keeps nothing: a service that dies starts a new term, and agents of the old one end (R1).
class NoJournal final : public Journal {
 public:
  bool keeps() const override { return false; }
  void Write(const std::string& /*run_id*/, JobRecord /*record*/,
             std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Forget(const std::string& /*run_id*/) override {}
  void Retract(const std::string& /*run_id*/, std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  std::string where() const override { return ""; }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_H_
