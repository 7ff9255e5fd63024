#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORDER_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORDER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// When the job's record has to be written, so that no node learns anything that a restart of the
// service would forget (R10). Pure.
//
//   kept ─Note─► due ─TakeDue─► kept …           ─Lose─► lost, for good
class Recorder {
 public:
  // Params: keeps: there is a journal; recorded: it already has a record of the job.
  explicit Recorder(bool keeps, bool recorded = false)
      : keeps_(keeps), withholds_(keeps && !recorded) {}

  // Something was decided, or may be confirmed once it is recorded.
  void Note() { due_ = keeps_; }
  // The step is over. Returns whether its decisions have to be recorded before they are sent.
  bool TakeDue() { return std::exchange(due_, false); }
  // A record is written, or can't be. Returns true once: from now on nodes get messages.
  bool TakeFirst() { return std::exchange(withholds_, false); }
  // The journal failed. From now on the job depends on its service.
  void Lose(const absl::Status& why) {
    keeps_ = false;
    due_ = false;
    lost_ = why.ToString();
  }

  // There is a journal, so agents keep the events that no record covers.
  bool keeps() const { return keeps_; }
  // No node gets a message, not even a probe, because there is no record of the job so far.
  bool withholds() const { return withholds_; }
  // Why the journal is lost; "" = it isn't, or there never was one.
  const std::string& lost() const { return lost_; }
  // The first broken invariant; "" = all hold.
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
