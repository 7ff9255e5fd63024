#ifndef DDPRUN_RENDEZVOUS_CORE_RELEASES_H_
#define DDPRUN_RENDEZVOUS_CORE_RELEASES_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Whether agents and a service of two releases may meet in one job (R6): their major numbers are
// equal, and their minor numbers differ by one at most. Params: texts as of kVersion, "1.4.2"; one
// that doesn't begin with two numbers isn't judged, and meets any.
bool MayMeet(absl::string_view one, absl::string_view other);

// A message of a kind that a later release added. It does nothing; as an event, it is counted.
struct UnknownKind {
  friend bool operator==(const UnknownKind&, const UnknownKind&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RELEASES_H_
