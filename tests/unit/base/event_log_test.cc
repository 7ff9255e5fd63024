#include "base/event_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using nlohmann::json;

class EventLogTest : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }

  std::vector<json> Lines() const {
    std::ifstream file(path_);
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  std::string path_ = absl::StrCat(::testing::TempDir(), "/event_log_test.", getpid());
};

TEST_F(EventLogTest, WritesOneObjectALine) {
  const EventLog log = *EventLog::Open(path_, "agent:a");
  EXPECT_TRUE(log.enabled());
  log.Write(Instant::FromNanoseconds(1'500'000'000), "joined", {{"rank", 3}});
  log.Write(Instant::FromNanoseconds(2'000'000'000), "left");
  const std::vector<json> lines = Lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["t"], 1.5);
  EXPECT_EQ(lines[0]["who"], "agent:a");
  EXPECT_EQ(lines[0]["event"], "joined");
  EXPECT_EQ(lines[0]["rank"], 3);
  EXPECT_EQ(lines[0]["pid"], getpid());
  EXPECT_GT(lines[0]["wall"].get<double>(), 1.6e9);
  EXPECT_EQ(lines[1]["event"], "left");
}

TEST_F(EventLogTest, TakesAnyBytes) {
  const EventLog log = *EventLog::Open(path_, "agent");
  log.Write(Instant(), "failed", {{"message", "bad \xff byte\nand line"}});
  ASSERT_EQ(Lines().size(), 1U);
  EXPECT_EQ(Lines()[0]["message"], "bad \xEF\xBF\xBD byte\nand line");
}

TEST_F(EventLogTest, LinesOfSeveralWritersStayWhole) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      const EventLog log = *EventLog::Open(path_, absl::StrCat("writer:", writer));
      for (int i = 0; i < 200; ++i) log.Write(Instant(), "e", {{"text", std::string(500, 'x')}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Lines().size(), 800U);  // each of them parsed
}

TEST_F(EventLogTest, DropsAllWhenThereIsNoFile) {
  const EventLog log;
  EXPECT_FALSE(log.enabled());
  log.Write(Instant(), "nothing");
}

TEST_F(EventLogTest, NamesAPathThatCanNotBeOpened) {
  const auto log = EventLog::Open("/no/such/directory/log", "agent");
  EXPECT_TRUE(absl::StrContains(log.status().message(), "'/no/such/directory/log'"))
      << log.status();
}

}  // namespace
}  // namespace ddprun
