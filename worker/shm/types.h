#ifndef DDPRUN_WORKER_SHM_TYPES_H_
#define DDPRUN_WORKER_SHM_TYPES_H_

#include <cstddef>
#include <cstdint>

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

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_TYPES_H_
