#include "worker/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ddprun/tensorboard/v1/event.pb.h"

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

namespace {

using tensorboard::v1::Event;
using tensorboard::v1::SessionLog;
using tensorboard::v1::Summary;

constexpr absl::string_view kNamePrefix = "events.out.tfevents.";
// From this version on readers drop earlier events at the step of a session log.
constexpr const char* kFileVersion = "brain.Event:2";

void AppendLittleEndian(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
}

double SecondsOf(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// The greatest time in the names of the directory's event files; 0 = there is none.
int64_t LatestTime(const std::string& directory) {
  int64_t latest = 0;
  std::error_code unreadable;  // open(2) then fails as well
  for (const auto& entry : std::filesystem::directory_iterator(directory, unreadable)) {
    const std::string name = entry.path().filename();
    absl::string_view rest = name;
    int64_t time = 0;
    if (!absl::ConsumePrefix(&rest, kNamePrefix)) continue;
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &time)) latest = std::max(latest, time);
  }
  return latest;
}

std::string NewName(const std::string& directory, absl::Time now) {
  const int64_t time = std::max(absl::ToUnixSeconds(now), LatestTime(directory) + 1);
  return absl::StrFormat("%s/%s%010d.%s.%d", directory, kNamePrefix, time, HostName(), getpid());
}

}  // namespace

std::string TfRecord(absl::string_view data) {
  std::string record;
  AppendLittleEndian(record, data.size(), 8);
  AppendLittleEndian(record, MaskedCrc32c(record), 4);
  absl::StrAppend(&record, data);
  AppendLittleEndian(record, MaskedCrc32c(data), 4);
  return record;
}

absl::StatusOr<EventFile> EventFile::Create(const std::string& directory, int64_t first_step,
                                            absl::Time now) {
  DDPRUN_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(NewName(directory, now)));
  Event version;
  version.set_wall_time(SecondsOf(now));
  version.set_file_version(kFileVersion);
  Event start;
  start.set_wall_time(SecondsOf(now));
  start.set_step(first_step);
  start.mutable_session_log()->set_status(SessionLog::START);
  DDPRUN_RETURN_IF_ERROR(file.Append(
      absl::StrCat(TfRecord(version.SerializeAsString()), TfRecord(start.SerializeAsString()))));
  return EventFile(std::move(file));
}

absl::Status EventFile::Append(const MetricsRecord& record) {
  Event event;
  event.set_wall_time(SecondsOf(record.time));
  event.set_step(record.step);
  for (const auto& [name, value] : record.values) {
    Summary::Value* scalar = event.mutable_summary()->add_value();
    scalar->set_tag(name);
    scalar->set_simple_value(static_cast<float>(value));
  }
  return file_.Append(TfRecord(event.SerializeAsString()));
}

}  // namespace ddprun::worker
