#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORDER_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORDER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// When the job's record is to be written, so that nothing is told that a restart of the service
// would forget (R10). Pure.
//
//   kept ─Note─► due ─TakeDue─► kept …           ─Lose─► lost, for good
class Recorder {
 public:
  // Params: keeps: there is a journal; recorded: it has a record of the job already.
  explicit Recorder(bool keeps, bool recorded = false)
      : keeps_(keeps), withholds_(keeps && !recorded) {}

  // Something was decided, or may be confirmed once it is recorded.
  void Note() { due_ = keeps_; }
  // The step is over: whether what it has decided is to be recorded before it is told.
  bool TakeDue() { return std::exchange(due_, false); }
  // A record is kept, or can't be. True, once: from now on nodes are spoken to.
  bool TakeFirst() { return std::exchange(withholds_, false); }
  // The journal failed. From now on the job depends on its service.
  void Lose(const absl::Status& why) {
    keeps_ = false;
    due_ = false;
    lost_ = why.ToString();
  }

  // Agents keep what is not recorded yet.
  bool keeps() const { return keeps_; }
  // Nothing is told to anybody, not even a probe: there is no record of the job yet.
  bool withholds() const { return withholds_; }
  // Why the journal is lost; "" = it isn't, or there never was one.
  const std::string& lost() const { return lost_; }
  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant() const {
    if (due_ && !keeps_) return "a record that nobody keeps";
    return keeps_ && !lost_.empty() ? "a journal that is lost and goes on" : "";
  }

 private:
  bool keeps_;
  bool withholds_;    // until the first record; then never again
  bool due_ = false;  // only while keeps_; false between two steps
  std::string lost_;  // empty while keeps_
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORDER_H_
