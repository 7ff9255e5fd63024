#ifndef DDPRUN_BASE_HELD_UP_H_
#define DDPRUN_BASE_HELD_UP_H_

#include "absl/time/time.h"

namespace ddprun {

// Who is called later than it asked for by more than this was held up itself: its process was
// stopped, its machine paused or out of memory. A machine that is only busy lets nobody wait for so
// long. What others did meanwhile may be unread, so their silence proves nothing
// (docs/PROTOCOL.md R4).
inline constexpr absl::Duration kHeldUp = absl::Milliseconds(250);

}  // namespace ddprun

#endif  // DDPRUN_BASE_HELD_UP_H_
