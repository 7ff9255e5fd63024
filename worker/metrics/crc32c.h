#ifndef DDPRUN_WORKER_METRICS_CRC32C_H_
#define DDPRUN_WORKER_METRICS_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ddprun::worker {

// The CRC with Castagnoli's polynomial. A byte at a time, as a record is some hundred bytes; Debian
// 12 has no library for it. Source: RFC 3720, appendix B.4.
uint32_t Crc32c(absl::string_view bytes);

// As TFRecord files hold it, so that the CRC of bytes that contain CRCs stays a good one.
// Source: tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_CRC32C_H_
