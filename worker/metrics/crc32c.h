#ifndef DDPRUN_WORKER_METRICS_CRC32C_H_
#define DDPRUN_WORKER_METRICS_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ddprun::worker {

// The CRC with Castagnoli's polynomial. Computed byte by byte, which is fast enough for records of
// some hundred bytes; Debian 12 has no library for it. Source: RFC 3720, appendix B.4.
uint32_t Crc32c(absl::string_view bytes);

// The masked form in TFRecord files: a CRC over bytes that contain plain CRCs would be weak.
// Source: tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_CRC32C_H_
