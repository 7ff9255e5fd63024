#ifndef DDPRUN_WORKER_SHM_HALF_FLOAT_H_
#define DDPRUN_WORKER_SHM_HALF_FLOAT_H_

#include <cstddef>
#include <cstdint>

namespace ddprun::worker::shm {

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

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_HALF_FLOAT_H_
