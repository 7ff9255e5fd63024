#ifndef DDPRUN_WORKER_SHM_REDUCE_H_
#define DDPRUN_WORKER_SHM_REDUCE_H_

#include <cstddef>
#include <vector>

#include "worker/shm/types.h"

namespace ddprun::worker::shm {

// Whether the reduction has a meaning for the type. False: averages of integers and truth values,
// bit operations on floating-point numbers.
bool IsReducible(DataType type, Reduction reduction);

// Reduces `count` elements of each source into `out`, element by element, in the order of the
// sources. The result depends on nothing else, so every rank computes the same bits. float16 and
// bfloat16 are added up in float32 and rounded once. Integers wrap around. A sum of truth values is
// their "or", a product their "and", as with NCCL. Params: sources: one pointer a rank, aligned for
// the type; `out` may be equal to one of them. Requires: IsReducible(type, reduction); at least one
// source. Threads: any.
void Reduce(DataType type, Reduction reduction, const std::vector<const std::byte*>& sources,
            std::byte* out, size_t count);

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_REDUCE_H_
