#include "tools/preflight/probe_datagram.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kProbeMagic = 0x6e72'7064'6470;  // "pddprn"
constexpr size_t kMagicBytes = 7;

void AppendProbeNumber(uint64_t number, size_t size, std::string* bytes) {
  for (size_t i = 0; i < size; ++i) *bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

uint64_t TakeProbeNumber(size_t size, absl::string_view* bytes) {
  uint64_t number = 0;
  for (size_t i = size; i > 0; --i) {
    number = number << 8 | static_cast<unsigned char>((*bytes)[i - 1]);
  }
  bytes->remove_prefix(size);
  return number;
}

}  // namespace

std::string EncodeProbe(const ProbeDatagram& probe) {
  std::string bytes;
  bytes.reserve(kProbeBytes);
  AppendProbeNumber(kProbeMagic, kMagicBytes, &bytes);
  AppendProbeNumber(static_cast<uint8_t>(probe.kind), 1, &bytes);
  AppendProbeNumber(probe.from, 4, &bytes);
  AppendProbeNumber(probe.pass, 4, &bytes);
  AppendProbeNumber(probe.token, 8, &bytes);
  AppendProbeNumber(static_cast<uint64_t>(probe.sent_ns), 8, &bytes);
  return bytes;
}

std::optional<ProbeDatagram> DecodeProbe(absl::string_view bytes) {
  if (bytes.size() != kProbeBytes) return std::nullopt;
  if (TakeProbeNumber(kMagicBytes, &bytes) != kProbeMagic) return std::nullopt;
  const uint64_t kind = TakeProbeNumber(1, &bytes);
  if (kind < static_cast<uint64_t>(ProbeDatagram::Kind::kData) ||
      kind > static_cast<uint64_t>(ProbeDatagram::Kind::kHere)) {
    return std::nullopt;
  }
  ProbeDatagram probe{.kind = static_cast<ProbeDatagram::Kind>(kind)};
  probe.from = static_cast<uint32_t>(TakeProbeNumber(4, &bytes));
  probe.pass = static_cast<uint32_t>(TakeProbeNumber(4, &bytes));
  probe.token = TakeProbeNumber(8, &bytes);
  probe.sent_ns = static_cast<int64_t>(TakeProbeNumber(8, &bytes));
  return probe;
}

}  // namespace ddprun::launcher
