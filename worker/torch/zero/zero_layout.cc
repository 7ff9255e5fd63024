#include "worker/torch/zero/zero_layout.h"

#include <algorithm>
#include <map>
#include <utility>

// How parameters are cut into shares.
//
// Goal: every rank owns the same number of bytes of every bucket, so that one reduce-scatter and
// one all-gather a bucket move everything in place. Whole parameters can't be dealt out evenly: the
// embedding of GPT-2 has 38.6 of the model's 124.4 million elements, so one of eight ranks would
// own 31 % of the state instead of 12.5 %. A bucket is therefore one flat tensor, and a share ends
// in the middle of a parameter if that is where its length ends.
//
// A rank's share of a parameter, a *piece*, is a vector that an ordinary optimizer knows as its
// parameter, so any elementwise torch::optim::Optimizer works; those that look across elements
// (LAMB, Muon) don't fit. A vector per bucket couldn't leave out a parameter without a gradient. In
// a saved state a piece is named by where it begins (`3.exp_avg@4096`), so whole states, shards of
// any world size and states of plain optimizers are one format, which later releases must read.
//
// Every rank computes the layout from the same list, so the buckets and their order, in which the
// collectives run, agree without a message.
//
// Example: w1, b1, w2, b2 with 100, 10, 200 and 20 float32, two ranks, limits of 400 bytes. The
// walk goes from the last parameter to the first, as a backward pass does:
//
//   bucket  slots [begin, end)       length   length / 2, rounded up to 16 = share
//   0       b2 [0, 20) w2 [20, 220)  220      110 -> 112
//   1       b1 [0, 10) w1 [10, 110)  110       55 ->  64
//
//   rank  of bucket 0 (from share * rank)   of bucket 1
//   0     b2 whole, w2 [0, 92)              b1 whole, w1 [0, 54)
//   1     w2 [92, 200), 4 of padding        w1 [54, 100), 18 of padding
//
// b2 alone has 80 bytes, fewer than the limit, so w2 joins it and closes the bucket at 880 bytes: a
// limit is where a bucket is full, not how long it may be.

namespace ddprun::worker {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

void Append(size_t parameter, int64_t elements, ZeroBucketLayout& bucket) {
  bucket.slots.push_back({.parameter = parameter, .begin = bucket.length, .length = elements});
  bucket.length += elements;
}

ZeroBucketLayout Closed(ZeroBucketLayout bucket, uint32_t world_size) {
  bucket.share = RoundUp(RoundUp(bucket.length, world_size) / world_size, kZeroShareElements);
  return bucket;
}

}  // namespace

std::vector<ZeroBucketLayout> LayOutZeroBuckets(const std::vector<ZeroParameterSize>& parameters,
                                                const ZeroLayoutLimits& limits,
                                                uint32_t world_size) {
  std::vector<ZeroBucketLayout> full;
  // By type, because a bucket is one tensor: a model with float32 norms between bfloat16 weights
  // fills two buckets at a time, and they close in the order in which they are full.
  std::map<int, ZeroBucketLayout> open;
  for (size_t i = parameters.size(); i-- > 0;) {
    const ZeroParameterSize& size = parameters[i];
    ZeroBucketLayout& bucket = open[size.type];
    Append(i, size.elements, bucket);
    const int64_t limit = full.empty() ? limits.first_bucket_bytes : limits.bucket_bytes;
    if (bucket.length * size.element_bytes < limit) continue;
    full.push_back(Closed(std::move(bucket), world_size));
    open.erase(size.type);
  }
  for (auto& [type, bucket] : open) full.push_back(Closed(std::move(bucket), world_size));
  return full;
}

// Stage 3 gathers a whole bucket when an operator uses one of its parameters. If a block lay across
// two buckets, each of its passes would gather both, so a bucket is closed before a block that
// would overfill it. A block that is larger than the limit gets a bucket of its own.
//
// Example: blocks 0 to 3 of 120, 120, 400 and 40 bytes, limit 240, from the last one:
//
//   block 3   opens a bucket with 40
//   block 2   40 + 400 > 240: closes it, and opens one with 400
//   block 1   400 + 120 > 240: closes it, and opens one with 120
//   block 0   120 + 120 <= 240: joins block 1
//
// A block's bytes are counted by type, because each type has a bucket of its own.
std::vector<ZeroBucketLayout> LayOutZeroBlocks(const std::vector<ZeroParameterSize>& parameters,
                                               const std::vector<size_t>& blocks,
                                               int64_t bucket_bytes, uint32_t world_size) {
  std::map<std::pair<size_t, int>, int64_t> bytes;  // by block and type
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ZeroParameterSize& size = parameters[i];
    bytes[{blocks[i], size.type}] += size.elements * size.element_bytes;
  }
  struct Open {
    ZeroBucketLayout bucket;
    size_t block = 0;  // the last one in it
  };
  std::vector<ZeroBucketLayout> full;
  std::map<int, Open> open;  // by type
  for (size_t i = parameters.size(); i-- > 0;) {
    const ZeroParameterSize& size = parameters[i];
    Open& here = open[size.type];
    const bool begins = here.bucket.length > 0 && here.block != blocks[i];
    const int64_t held = here.bucket.length * size.element_bytes;
    if (begins && held + bytes.at({blocks[i], size.type}) > bucket_bytes) {
      full.push_back(Closed(std::move(here.bucket), world_size));
      here.bucket = ZeroBucketLayout();
    }
    Append(i, size.elements, here.bucket);
    here.block = blocks[i];
  }
  for (auto& [type, here] : open) full.push_back(Closed(std::move(here.bucket), world_size));
  return full;
}

// A share and a slot are each one range, and so is what they have in common: a rank has at most one
// piece of a parameter. The last ranks' shares of a short bucket may be padding alone (10 elements,
// 4 ranks: rank 0's share of 16 has all of them).
std::vector<ZeroPiece> ZeroPiecesOf(const std::vector<ZeroBucketLayout>& buckets, uint32_t rank) {
  std::vector<ZeroPiece> pieces;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    const int64_t begin = buckets[bucket].share * rank;
    const int64_t end = begin + buckets[bucket].share;
    for (const ZeroSlot& slot : buckets[bucket].slots) {
      const int64_t from = std::max(begin, slot.begin);
      const int64_t to = std::min(end, slot.begin + slot.length);
      if (from >= to) continue;
      pieces.push_back({.parameter = slot.parameter,
                        .bucket = bucket,
                        .begin = from - slot.begin,
                        .length = to - from,
                        .share_begin = from - begin});
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const ZeroPiece& a, const ZeroPiece& b) { return a.parameter < b.parameter; });
  return pieces;
}

}  // namespace ddprun::worker
