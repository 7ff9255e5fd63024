#ifndef DDPRUN_BASE_HELD_UP_H_
#define DDPRUN_BASE_HELD_UP_H_

#include "absl/time/time.h"

namespace ddprun {

// A timer that fires later than this means that the process itself was held up: it was stopped, or
// its machine paused or ran out of memory. A machine that is only busy doesn't delay a process for
// so long. Messages may have arrived unread meanwhile, so the silence of others proves nothing
// (docs/PROTOCOL.md R4).
inline constexpr absl::Duration kHeldUp = absl::Milliseconds(250);

}  // namespace ddprun

#endif  // DDPRUN_BASE_HELD_UP_H_
