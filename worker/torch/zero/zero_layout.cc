#include "worker/torch/zero/zero_layout.h"

#include <algorithm>
#include <map>
#include <utility>

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
  std::map<int, ZeroBucketLayout> open;  // by type
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
