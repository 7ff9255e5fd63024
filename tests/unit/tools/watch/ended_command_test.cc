#include "tools/watch/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher::ended_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixMillis(1'767'355'445'125);

EndedJob Failed() {
  return {.run_id = "job7",
          .description = "train.py (2 nodes)",
          .outcome = "failed_for_good",
          .status = 93,
          .reason = "worker rank 3 on host1 exited with code 1",
          .rule = "crash_loop",
          .generation = 4,
          .restart_count = 3,
          .max_restarts = 5,
          .node = "host0#4711",
          .host = "host0",
          .logs = "/logs/job7_1",
          .began_ms = absl::ToUnixMillis(kNow - absl::Hours(2)),
          .ended_ms = absl::ToUnixMillis(kNow - absl::Minutes(3))};
}

std::string Text(const EndedJob& job, StatusDetail detail, const std::string& host = "host0") {
  return EndedText({job}, host, kNow, detail);
}

TEST(EndedText, SaysHowWhenAndWhy) {
  EXPECT_EQ(
      "job job7: failed for good 3 min 0 s ago, ran for 1 h 57 min, exit status 93, restarts 3 of "
      "5\n"
      "  train.py (2 nodes)\n"
      "  worker rank 3 on host1 exited with code 1\n"
      "  logs: /logs/job7_1\n",
      Text(Failed(), StatusDetail::kPlain));
}

TEST(EndedText, WideHasTimesNodeAndRule) {
  const std::string text = Text(Failed(), StatusDetail::kWide);
  EXPECT_THAT(text, HasSubstr("exited with code 1 (rule crash_loop)\n"));
  EXPECT_THAT(text, HasSubstr(", generation 4, reported by node host0#4711\n"));
}

TEST(EndedText, OfANodeThatLeftTheJobMayGoOn) {
  EndedJob job = Failed();
  job.outcome = "left";
  EXPECT_THAT(Text(job, StatusDetail::kPlain), HasSubstr("job job7: this node left it 3 min 0 s"));
}

TEST(EndedText, NamesAnotherMachine) {
  EXPECT_THAT(Text(Failed(), StatusDetail::kPlain, "login"), HasSubstr("job job7 on host0: "));
}

TEST(EndedText, WhySuccessCameIsNoNews) {
  EndedJob job = Failed();
  job.outcome = "succeeded";
  job.logs = "";
  job.restart_count = 6;  // of changes of membership, too
  EXPECT_THAT(Text(job, StatusDetail::kPlain), Not(HasSubstr("worker rank 3")));
  EXPECT_THAT(Text(job, StatusDetail::kPlain), Not(HasSubstr("logs")));
  EXPECT_THAT(Text(job, StatusDetail::kPlain), HasSubstr("restarts 6\n"));
  EXPECT_THAT(Text(job, StatusDetail::kWide), HasSubstr("worker rank 3"));
}

// The clocks differ, or were set meanwhile.
TEST(EndedText, TimesThatCantBeAreNought) {
  EndedJob job = Failed();
  job.ended_ms = absl::ToUnixMillis(kNow + absl::Hours(1));
  job.began_ms = job.ended_ms + 1;
  EXPECT_THAT(Text(job, StatusDetail::kPlain), HasSubstr("0 ms ago, ran for 0 ms"));
}

TEST(EndedText, FillsAScreen) {
  const std::vector<EndedJob> jobs(13, Failed());
  EXPECT_THAT(EndedText(jobs, "host0", kNow, StatusDetail::kPlain),
              HasSubstr("…  3 more before (see -o wide)\n"));
  EXPECT_THAT(EndedText(jobs, "host0", kNow, StatusDetail::kWide), Not(HasSubstr("more before")));
}

TEST(EndedJson, HasEachTimeTwice) {
  const auto document = nlohmann::json::parse(EndedJson({Failed(), Failed()}));
  ASSERT_EQ(2, document["ended"].size());
  const auto& job = document["ended"][0];
  EXPECT_EQ("failed_for_good", job["outcome"]);
  EXPECT_EQ(93, job["status"]);
  EXPECT_EQ(7'020'000, job["lasted_ms"]);
  EXPECT_EQ("2026-01-02T12:01:05.125Z", job["ended_at"]) << job["ended_ms"];
}

}  // namespace
}  // namespace ddprun::launcher::ended_command_test
