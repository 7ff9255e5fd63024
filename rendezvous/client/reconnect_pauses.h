#ifndef DDPRUN_RENDEZVOUS_CLIENT_RECONNECT_PAUSES_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RECONNECT_PAUSES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "base/rng.h"

namespace ddprun::rendezvous {

struct ReconnectSettings {
  // The pause after the first failed try; doubles up to the longest. It is short for nodes that are
  // started together, because the service is usually there some milliseconds later.
  absl::Duration first = absl::Milliseconds(25);
  // The longest pause of an agent that has had a stream. A service that died is started again at
  // once, and its agents must be back before any counts as lost. A service in a lost machine's
  // place may come at any time, and then the job waits for its agents.
  absl::Duration longest_again = absl::Milliseconds(200);
  // An agent that never had a stream uses `longest_again` for this time, then `longest`.
  absl::Duration soon = absl::Seconds(30);
  absl::Duration longest = absl::Milliseconds(1000);
};

// How long an agent waits before it tries the service again. A jitter shortens each pause by up to
// a fifth, so that the nodes of a large job don't come at the same moment. Pure; one thread.
class ReconnectPauses {
 public:
  ReconnectPauses(ReconnectSettings settings, uint64_t seed, Instant now);

  // A stream that worked has ended. Returns a pause that is shorter than the first one.
  absl::Duration AfterStream();
  // A try failed. Returns the pause, at most the longest.
  absl::Duration AfterFailure(Instant now);

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  absl::Duration Longest(Instant now) const;

  ReconnectSettings settings_;
  Rng rng_;
  const Instant began_;
  bool had_stream_ = false;  // that worked
  absl::Duration next_;      // the next pause without its jitter; from first to longest
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RECONNECT_PAUSES_H_
