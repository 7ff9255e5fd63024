#ifndef DDPRUN_RENDEZVOUS_SERVER_REFUSALS_H_
#define DDPRUN_RENDEZVOUS_SERVER_REFUSALS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/event_log.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// Counts refused input from the network, and logs the first of each kind (R9): a flood of bad input
// must not become a flood of lines. Threads: one at a time.
class Refusals {
 public:
  explicit Refusals(EventLog* events) : events_(events) {}

  // Params: kind: snake_case, one of a few constants; peer: gRPC's name of it.
  void Count(Instant now, const std::string& kind, const std::string& peer,
             const absl::Status& status);
  const std::map<std::string, uint64_t>& counts() const { return counts_; }

 private:
  EventLog* events_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_REFUSALS_H_
