#include "worker/torch/zero/zero_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ddprun::worker {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::vector<ZeroBucketLayout> LayOutZeroBuckets(const std::vector<ZeroParameterSize>& parameters,
                                                const ZeroLayoutLimits& limits,
                                                uint32_t world_size) {
  std::vector<ZeroBucketLayout> full;
  std::map<int, ZeroBucketLayout> open;  // by type
  const auto close = [&](ZeroBucketLayout bucket) {
    bucket.share = RoundUp(RoundUp(bucket.length, world_size) / world_size, kZeroShareElements);
    full.push_back(std::move(bucket));
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const ZeroParameterSize& size = parameters[i];
    ZeroBucketLayout& bucket = open[size.type];
    bucket.slots.push_back({.parameter = i, .begin = bucket.length, .length = size.elements});
    bucket.length += size.elements;
    const int64_t limit = full.empty() ? limits.first_bucket_bytes : limits.bucket_bytes;
    if (bucket.length * size.element_bytes < limit) continue;
    close(std::move(bucket));
    open.erase(size.type);
  }
  for (auto& [type, bucket] : open) close(std::move(bucket));
  return full;
}

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
