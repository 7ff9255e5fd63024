#ifndef DDPRUN_WORKER_SHM_REDUCE_H_
#define DDPRUN_WORKER_SHM_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddprun::worker::shm {

// The type of a collective's elements. kBool: one byte, 0 or 1.
enum class DataType : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

enum class Reduction : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };

// Bytes of one element.
size_t SizeOf(DataType type);
// "float32"; for people.
const char* NameOf(DataType type);
// "sum"; for people.
const char* NameOf(Reduction reduction);

// IEEE 754 binary16 and bfloat16 as their bits, to and from float32, rounded to the nearest even.
// NaNs stay NaNs. The float16 pair uses the processor's F16C instructions where it has them, with
// the same results. Threads: any.
void Float16ToFloat32(const uint16_t* from, float* to, size_t count);
void Float32ToFloat16(const float* from, uint16_t* to, size_t count);
void BFloat16ToFloat32(const uint16_t* from, float* to, size_t count);
void Float32ToBFloat16(const float* from, uint16_t* to, size_t count);

// The float16 pair without F16C, for processors that lack it.
void PortableFloat16ToFloat32(const uint16_t* from, float* to, size_t count);
void PortableFloat32ToFloat16(const float* from, uint16_t* to, size_t count);

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
