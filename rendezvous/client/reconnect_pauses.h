#ifndef DDPRUN_RENDEZVOUS_CLIENT_RECONNECT_PAUSES_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RECONNECT_PAUSES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "base/rng.h"

namespace ddprun::rendezvous {

struct ReconnectSettings {
  // The first pause after a try that failed; doubles up to the longest. The first is short for
  // nodes that are started together: the service is usually there some milliseconds later.
  absl::Duration first = absl::Milliseconds(25);
  // The longest of who had the service before: one that died is started again at once, and its
  // agents are to be back before anybody counts as lost; in a lost machine's place another one may
  // come at any time, and the job waits for its agents then.
  absl::Duration longest_again = absl::Milliseconds(200);
  // Who never had it comes as often for so long, and then after the longest pause.
  absl::Duration soon = absl::Seconds(30);
  absl::Duration longest = absl::Milliseconds(1000);
};

// How long an agent waits before it tries the service again. A jitter shortens each pause by up to
// a fifth, so that the nodes of a large job don't come all in one moment. Pure; one thread.
class ReconnectPauses {
 public:
  ReconnectPauses(ReconnectSettings settings, uint64_t seed, Instant now);

  // A stream that worked has ended. Returns: the pause, shorter than the first one.
  absl::Duration AfterStream();
  // A try failed. Returns: the pause, at most the longest.
  absl::Duration AfterFailure(Instant now);

  // What doesn't hold of the fields below; "" = all of it does.
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
