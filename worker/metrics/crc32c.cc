#include "worker/metrics/crc32c.h"

#include <array>
#include <cstddef>

namespace ddprun::worker {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82F63B78;
constexpr uint32_t kMaskDelta = 0xA282EAD8;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t sum = ~uint32_t{0};
  for (const char byte : bytes) {
    sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (sum >> 8);
  }
  return ~sum;
}

uint32_t MaskedCrc32c(absl::string_view bytes) {
  const uint32_t sum = Crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + kMaskDelta;
}

}  // namespace ddprun::worker
