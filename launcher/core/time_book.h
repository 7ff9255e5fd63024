#ifndef DDPRUN_LAUNCHER_CORE_TIME_BOOK_H_
#define DDPRUN_LAUNCHER_CORE_TIME_BOOK_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/time_spent.h"

namespace ddprun::launcher {

// Accounts for how the workers of this node spend a generation (docs/GOODPUT.md), from the words of
// their pages. If workers do different things at a time, the one that holds up the others counts: a
// checkpoint before an evaluation before training.
//
// A mark counts from the time that the worker stored with it, or else from the look that saw it.
// Pure; one thread.
class TimeBook {
 public:
  // What the pages show at a time.
  struct Look {
    std::vector<uint64_t> words;  // by local rank; 0 = never marked
    // When each word was stored, by local rank; before the last look or in the future = not known.
    std::vector<Instant> marked = {};
    // How long the worker that waited longest has waited for data so far. Booked as waiting only
    // for as long as the phase is training.
    absl::Duration data_wait = {};
  };

  // Params: `redone_to` is the highest step that was done before and lost; 0 = none.
  TimeBook(uint64_t redone_to, Instant now);

  void OnLook(Instant now, const Look& look);
  // The workers have begun to end; the service accounts for the time from here on. Only the first
  // call counts.
  void Close(Instant now);

  rendezvous::NodeTime Read(Instant now) const;

 private:
  rendezvous::TimeCause CauseOf(const std::vector<uint64_t>& words) const;
  Instant ChangedAt(Instant now, const Look& look) const;
  void BookUntil(Instant now);

  const uint64_t redone_to_;
  std::vector<uint64_t> words_;
  rendezvous::TimeCause cause_ = rendezvous::TimeCause::kUnmarked;  // since last_
  Instant last_;                                                    // spent_ is booked up to here
  Instant looked_;
  Instant closed_ = Instant::Infinite();
  absl::Duration data_wait_;  // Look::data_wait of the last look
  absl::Duration data_owed_;  // the part of data_wait_ that isn't booked
  rendezvous::TimeSpent spent_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_TIME_BOOK_H_
