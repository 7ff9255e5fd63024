#include "tools/watch/event_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun::launcher {
namespace {

rendezvous::v1::JobEvent EventWith(const std::string& name,
                                   const std::vector<std::pair<std::string, std::string>>& fields) {
  rendezvous::v1::JobEvent event;
  event.set_number(12);
  event.set_wall_time_ms(1'700'000'000'250);
  event.set_monotonic_us(5'000'001);
  event.set_event(name);
  for (const auto& [field, value] : fields) {
    auto* entry = event.add_fields();
    entry->set_name(field);
    entry->set_value(value);
  }
  return event;
}

TEST(EventText, IsALine) {
  EXPECT_EQ(EventText(EventWith("node_lost", {{"node", "b"}, {"why", "lease expired"}}),
                      absl::UTCTimeZone()),
            "   12  22:13:20.250  node_lost         node=b  why=\"lease expired\"\n");
}

TEST(EventText, WideHasTheDateAndTheZone) {
  EXPECT_EQ(EventText(EventWith("formed", {}), absl::UTCTimeZone(), EventTime::kWithDate),
            "   12  2023-11-14 22:13:20.250+00:00  formed          \n");
}

TEST(EventText, JsonIsTheEventLogsLine) {
  const auto line =
      nlohmann::json::parse(EventJson("job7", EventWith("drain", {{"node", "b\xff"}})));
  EXPECT_EQ(line["number"], 12);
  EXPECT_EQ(line["t"], 5.000001);
  EXPECT_EQ(line["wall"], 1'700'000'000.25);
  EXPECT_EQ(line["who"], "service");
  EXPECT_EQ(line["event"], "drain");
  EXPECT_EQ(line["run_id"], "job7");
  EXPECT_EQ(line["node"], "b\xef\xbf\xbd");
}

TEST(EventText, MissedOnesAreCounted) {
  EXPECT_EQ(MissedText(3, 9), "warning: the service has forgotten the events 4 to 8");
}

TEST(HowItLeft, IsTheNodesEndOrTheJobs) {
  EXPECT_EQ(HowItLeft(EventWith("node_left", {{"node", "b"}, {"why", "drained"}}), "b"),
            "node b has left: drained");
  EXPECT_EQ(HowItLeft(EventWith("node_lost", {{"node", "b"}, {"why", "lease expired"}}), "b"),
            "node b is lost: lease expired");
  EXPECT_EQ(HowItLeft(EventWith("verdict", {{"outcome", "succeeded"}, {"reason", "r"}}), "b"),
            "the job has ended (succeeded): r");
  EXPECT_EQ(HowItLeft(EventWith("node_left", {{"node", "a"}}), "b"), "");
  EXPECT_EQ(HowItLeft(EventWith("drain", {{"node", "b"}}), "b"), "");
}

}  // namespace
}  // namespace ddprun::launcher
