#ifndef DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_JOURNAL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// A job as a former service left it.
struct KeptJob {
  std::string run_id;
  JobRecord record;        // its `life` counts the service that loads it
  absl::Duration elapsed;  // since the record was written; zero = unknown
};

// Storage for the records of a service's jobs (R10). Threads: the loop's.
class Journal {
 public:
  virtual ~Journal() = default;

  // Whether records are kept; otherwise they need not be made.
  virtual bool keeps() const = 0;
  // Stores `record` as the job's latest, then calls `done` on the loop, once, perhaps before this
  // returns. The job waits for it. Not called again for a job before `done`.
  virtual void Write(const std::string& run_id, JobRecord record,
                     std::function<void(absl::Status)> done) = 0;
  // Drops the job's record because the job is over. Reports no result.
  virtual void Forget(const std::string& run_id) = 0;
  // Drops a record that is outdated because a write has failed: no service may resume from it.
  // Params: done: as for Write; an error: the record may still exist, and the text says where. The
  // job waits for it.
  virtual void Retract(const std::string& run_id, std::function<void(absl::Status)> done) = 0;
  // The place of the records, for people: "/var/lib/ddprun/journal.db"; "" = nothing is kept.
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
