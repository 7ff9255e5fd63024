#ifndef DDPRUN_RENDEZVOUS_SERVER_JOURNAL_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOURNAL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/core/state_machine.h"

namespace ddprun::rendezvous {

// Where a service keeps what must outlive it (R10). A later one writes to a file or to etcd on a
// thread of its own, calls back by post, and is read at the start of the service, before it
// listens. Threads: the loop's.
class Journal {
 public:
  virtual ~Journal() = default;

  // Makes `record` the job's last word, then calls `done` on the loop, once, perhaps before this
  // returns. What the job does next waits for it. Not called again for a job before `done`.
  virtual void Write(const std::string& run_id, const Persist& record,
                     std::function<void(absl::Status)> done) = 0;
  // The job is over: drops its record. Without an answer: a record too many does no harm.
  virtual void Forget(const std::string& run_id) = 0;
};

// Keeps nothing: a service that dies starts a new term, and agents of the old one end (R1).
class NoJournal final : public Journal {
 public:
  void Write(const std::string& /*run_id*/, const Persist& /*record*/,
             std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Forget(const std::string& /*run_id*/) override {}
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOURNAL_H_
