#ifndef DDPRUN_RENDEZVOUS_CORE_IDENTIFIERS_H_
#define DDPRUN_RENDEZVOUS_CORE_IDENTIFIERS_H_

#include <cstdint>
#include <string>

#include "base/strong.h"

namespace ddprun::rendezvous {

using NodeId = Strong<struct NodeIdTag, std::string>;
// One agent process; drawn at its start, never 0.
using Incarnation = Strong<struct IncarnationTag, uint64_t>;
// Number of a stream of an incarnation, from 1.
using StreamNumber = Strong<struct StreamNumberTag, uint64_t>;
// One life of a service, or several with one journal; never 0 once known.
using Term = Strong<struct TermTag, uint64_t>;
// One complete assignment of ranks; 0 = none so far.
using Generation = Strong<struct GenerationTag, uint64_t>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_IDENTIFIERS_H_
