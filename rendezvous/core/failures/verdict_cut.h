#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_

#include <cstddef>

#include "rendezvous/core/message.h"

// How much of a verdict many nodes are told (R8): what is dear is its texts times the nodes. Pure.
namespace ddprun::rendezvous {

// What a verdict may have on the wire when it goes to so many nodes, in bytes: their share of
// kVerdictsBytesMax, and at least kVerdictBytesMin. Requires: nodes > 0.
size_t VerdictBytesFor(size_t nodes);

// At most what it takes on the wire, in bytes. Requires: texts are UTF-8, as all from the wire are.
size_t BytesOnWire(const Verdict& verdict);

// The verdict within `bytes_max`. What is left out, the least important first: stack and stderr of
// failures that aren't first causes, the last of them first; those failures; then the same of the
// first causes that tie with the first one; then the texts of that one, their less telling end
// first. It says how many failures were left out, and marks those whose texts were. Requires: a
// verdict that wasn't cut; bytes_max >= kVerdictBytesMin.
Verdict CutVerdict(Verdict verdict, size_t bytes_max);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_
