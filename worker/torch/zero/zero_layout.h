#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_LAYOUT_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddprun::worker {

// Which parts of the parameters each rank owns with ZeRO. Pure: counts of elements only.
//
// Parameters of one type lie one behind the other in a bucket. The bucket is cut into equal shares,
// one a rank, in order of the ranks; a share may begin and end inside a parameter:
//
//   bucket   [ w2        | b2 | w1                | b1 |pad]
//   shares   [ rank 0        | rank 1     | rank 2        ]

struct ZeroParameterSize {
  int64_t elements = 0;
  int64_t element_bytes = 0;
  int type = 0;  // parameters of different types share no bucket
};

// A parameter's place in its bucket.
struct ZeroSlot {
  size_t parameter = 0;
  int64_t begin = 0;
  int64_t length = 0;
};

struct ZeroBucketLayout {
  std::vector<ZeroSlot> slots;  // in order, without gaps
  int64_t length = 0;           // of all slots
  int64_t share = 0;            // elements of each rank; what lies behind `length` is padding
};

// The part of a parameter that one rank owns; a rank owns at most one of each parameter.
struct ZeroPiece {
  size_t parameter = 0;
  size_t bucket = 0;
  int64_t begin = 0;  // in the parameter
  int64_t length = 0;
  int64_t share_begin = 0;  // in the rank's share of the bucket
};

struct ZeroLayoutLimits {
  int64_t bucket_bytes = 0;        // a bucket is full when it has at least so many
  int64_t first_bucket_bytes = 0;  // the same for the first
};

// Shares begin at multiples of this, for aligned vectors.
inline constexpr int64_t kZeroShareElements = 16;

// Buckets, in the order in which backward passes fill them: the last parameters first.
// Requires: every parameter has elements; world_size at least 1.
std::vector<ZeroBucketLayout> LayOutZeroBuckets(const std::vector<ZeroParameterSize>& parameters,
                                                const ZeroLayoutLimits& limits,
                                                uint32_t world_size);

// Buckets for ZeRO-3, which gathers a bucket as a whole: a bucket holds as many whole blocks as fit
// into `bucket_bytes`, or one larger block alone.
// Params: blocks: by parameter, its block; the parameters of a block follow each other.
std::vector<ZeroBucketLayout> LayOutZeroBlocks(const std::vector<ZeroParameterSize>& parameters,
                                               const std::vector<size_t>& blocks,
                                               int64_t bucket_bytes, uint32_t world_size);

// The pieces of `rank`, in the order of the parameters.
std::vector<ZeroPiece> ZeroPiecesOf(const std::vector<ZeroBucketLayout>& buckets, uint32_t rank);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_LAYOUT_H_
