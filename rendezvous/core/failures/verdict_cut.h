#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_

#include <cstddef>

#include "rendezvous/core/verdict.h"

// Cuts a verdict for many nodes (R8): its size is that of its texts times the nodes. Pure.
namespace ddprun::rendezvous {

// The bytes that a verdict to `nodes` nodes may take on the wire: their share of kVerdictsBytesMax,
// and at least kVerdictBytesMin. Requires: nodes > 0.
size_t VerdictBytesFor(size_t nodes);

// Upper bound of the verdict's bytes on the wire. Requires: texts are UTF-8, as all from the wire
// are.
size_t BytesOnWire(const Verdict& verdict);

// The verdict within `bytes_max`. Leaves out, the least important first: stack and stderr of
// failures that aren't first causes, the last failure first; those failures; stack and stderr of
// the first causes that tie with the first one; the texts of the first one, each from its less
// useful end. The result has the number of failures left out, and marks those that lack texts.
// Requires: a verdict that wasn't cut; bytes_max >= kVerdictBytesMin.
Verdict CutVerdict(Verdict verdict, size_t bytes_max);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_VERDICT_CUT_H_
