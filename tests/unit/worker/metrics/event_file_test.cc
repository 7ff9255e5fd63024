#include "worker/metrics/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddprun/tensorboard/v1/event.pb.h"
#include "tests/unit/worker/metrics/temporary_directory.h"

namespace ddprun::worker {
namespace {

using tensorboard::v1::Event;
using tensorboard::v1::SessionLog;
using ::testing::StartsWith;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'763'800'000);

// RFC 3720, appendix B.4.
TEST(Crc32cTest, GivesTheExamplesOfItsSource) {
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) rising += byte;
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(Crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(Crc32c(""), 0U);
}

TEST(Crc32cTest, IsMaskedAsTensorFlowDoes) {
  const uint32_t sum = Crc32c("foo");
  EXPECT_EQ(MaskedCrc32c("foo"), ((sum >> 15) | (sum << 17)) + 0xA282EAD8U);
}

uint64_t Number(const std::string& bytes, size_t at, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return number;
}

// The events of whole records; tests that nothing is left over.
std::vector<Event> Events(const std::string& bytes) {
  std::vector<Event> events;
  size_t at = 0;
  while (at < bytes.size()) {
    const uint64_t length = Number(bytes, at, 8);
    EXPECT_EQ(Number(bytes, at + 8, 4), MaskedCrc32c(bytes.substr(at, 8)));
    const std::string data = bytes.substr(at + 12, length);
    EXPECT_EQ(Number(bytes, at + 12 + length, 4), MaskedCrc32c(data));
    Event& event = events.emplace_back();
    EXPECT_TRUE(event.ParseFromString(data));
    at += length + 16;
  }
  EXPECT_EQ(at, bytes.size());
  return events;
}

class EventFileTest : public WithDirectory {};

TEST_F(EventFileTest, BeginsWithItsVersionAndWhereItGoesOn) {
  absl::StatusOr<EventFile> file = EventFile::Create(directory_, 101, kNow);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<Event> events = Events(Read(file->file().path()));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1'763'800'000.0);
  EXPECT_EQ(events[1].session_log().status(), SessionLog::START);
  EXPECT_EQ(events[1].step(), 101);
}

TEST_F(EventFileTest, HasAScalarForEachValue) {
  absl::StatusOr<EventFile> file = EventFile::Create(directory_, 1, kNow);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append({.step = 7, .time = kNow, .values = {{"loss", 0.5}, {"x/y", -3}}}).ok());
  const std::vector<Event> events = Events(Read(file->file().path()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].step(), 7);
  ASSERT_EQ(events[2].summary().value_size(), 2);
  EXPECT_EQ(events[2].summary().value(0).tag(), "loss");
  EXPECT_EQ(events[2].summary().value(0).simple_value(), 0.5F);
  EXPECT_EQ(events[2].summary().value(1).tag(), "x/y");
  EXPECT_EQ(events[2].summary().value(1).simple_value(), -3.0F);
}

// The order holds also in the same second, and when the clock was set back.
TEST_F(EventFileTest, NamesSortInTheOrderOfTheStarts) {
  std::string before;
  for (const int seconds : {0, 0, -100, 5, 0}) {
    const auto file = EventFile::Create(directory_, 1, kNow + absl::Seconds(seconds));
    ASSERT_TRUE(file.ok());
    const std::string name = std::filesystem::path(file->file().path()).filename();
    EXPECT_THAT(name, StartsWith("events.out.tfevents.17638000"));
    EXPECT_GT(name, before);
    before = name;
  }
}

}  // namespace
}  // namespace ddprun::worker
