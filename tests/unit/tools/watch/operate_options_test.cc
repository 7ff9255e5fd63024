// ddprun drain and events.
#include "tools/watch/operate_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

template <typename Options>
Options OperateOptionsOf(const std::string& line) {
  const CommandLine parsed = Parse(Words(line), {});
  const auto* options = std::get_if<Options>(&parsed.command);
  if (options == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return options == nullptr ? Options() : *options;
}

TEST(Drain, TheNodeMayStandAnywhere) {
  for (const char* line :
       {"drain host3 --reason maintenance --rdzv_endpoint h:9 --token_file token",
        "drain --reason maintenance host3 --rdzv_endpoint h:9 --token_file token",
        "drain --reason maintenance --rdzv_endpoint h:9 --token_file token host3"}) {
    const auto options = OperateOptionsOf<DrainOptions>(line);
    EXPECT_EQ(options.node, "host3") << line;
    EXPECT_EQ(options.reason, "maintenance");
    EXPECT_EQ(options.port, 9);
    EXPECT_EQ(options.token, "s3cret");
    EXPECT_TRUE(options.wait);
    EXPECT_FALSE(options.undo);
  }
  const auto plain = OperateOptionsOf<DrainOptions>("drain 1");
  EXPECT_EQ(plain.run_id, "");
  EXPECT_EQ(plain.reason, "");
  EXPECT_TRUE(OperateOptionsOf<DrainOptions>("drain a --undo").undo);
  EXPECT_FALSE(OperateOptionsOf<DrainOptions>("drain a --no-wait").wait);
}

TEST(Drain, OneNodeIsNamed) {
  EXPECT_EQ(ExitOf(Parse(Words("drain"))).status, 2);
  EXPECT_THAT(ExitOf(Parse(Words("drain"))).text, HasSubstr("which node?"));
  EXPECT_THAT(ExitOf(Parse(Words("drain a b"))).text, HasSubstr("unexpected word 'b'"));
  EXPECT_THAT(ExitOf(Parse(Words("drain --undo a b"))).text, HasSubstr("unexpected word 'b'"));
}

TEST(Events, Options) {
  const auto plain = OperateOptionsOf<EventsOptions>("events");
  EXPECT_FALSE(plain.follow);
  EXPECT_EQ(plain.form, OutputForm::kText);
  EXPECT_EQ(plain.after, 0U);
  EXPECT_EQ(plain.since, absl::InfiniteDuration());
  const auto full = OperateOptionsOf<EventsOptions>("events -f --json --since 41 --rdzv_id j");
  EXPECT_TRUE(full.follow);
  EXPECT_EQ(full.form, OutputForm::kJson);
  EXPECT_EQ(full.after, 41U);
  EXPECT_EQ(full.run_id, "j");
  const auto last = OperateOptionsOf<EventsOptions>("events --since 1h30m -o wide");
  EXPECT_EQ(last.since, absl::Minutes(90));
  EXPECT_EQ(last.after, 0U);
  EXPECT_EQ(last.form, OutputForm::kWide);
  EXPECT_THAT(ExitOf(Parse(Words("events -o yaml"))).text, HasSubstr("'yaml': give json or wide"));
  EXPECT_EQ(ExitOf(Parse(Words("events --since -5m"))).status, 2);
  EXPECT_EQ(ExitOf(Parse(Words("events --since yesterday"))).status, 2);
  EXPECT_EQ(ExitOf(Parse(Words("events extra"))).status, 2);
}

TEST(Logs, Options) {
  const auto plain = OperateOptionsOf<LogsOptions>("logs");
  EXPECT_FALSE(plain.follow || plain.raw || plain.rank.has_value() || plain.tail.has_value());
  const auto full = OperateOptionsOf<LogsOptions>("logs -f --rank 3 --tail 20 --raw --token t");
  EXPECT_TRUE(full.follow && full.raw);
  EXPECT_EQ(full.rank, 3U);
  EXPECT_EQ(full.tail, 20U);
  EXPECT_EQ(full.token, "t");
  EXPECT_EQ(ExitOf(Parse(Words("logs --rank x"))).status, 2);
  EXPECT_EQ(ExitOf(Parse(Words("logs --tail=-1"))).status, 2);
}

TEST(Logs, KubectlsHabits) {
  for (const char* line :
       {"logs rank3 -n 20 --since 5m -o json", "logs -n20 rank3 --since=5m -ojson",
        "logs --tail 20 --since 5m --json 3", "logs 3 --rank 3 -n 20 --since 300 --json"}) {
    const auto options = OperateOptionsOf<LogsOptions>(line);
    EXPECT_EQ(options.rank, 3U) << line;
    EXPECT_EQ(options.tail, 20U) << line;
    EXPECT_EQ(options.since, absl::Minutes(5)) << line;
    EXPECT_EQ(options.form, OutputForm::kJson) << line;
  }
  EXPECT_EQ(OperateOptionsOf<LogsOptions>("logs").since, absl::InfiniteDuration());
  EXPECT_THAT(ExitOf(Parse(Words("logs job7"))).text, HasSubstr("a job is named with --rdzv_id"));
  EXPECT_THAT(ExitOf(Parse(Words("logs rank1 rank2"))).text, HasSubstr("one rank is shown"));
  EXPECT_THAT(ExitOf(Parse(Words("logs rank1 --rank 2"))).text, HasSubstr("are two ranks"));
  EXPECT_THAT(ExitOf(Parse(Words("logs --since soon"))).text, HasSubstr("as 90s, 5m or 2h"));
  EXPECT_THAT(ExitOf(Parse(Words("logs --raw -o wide"))).text, HasSubstr("exclude each other"));
}

TEST(Top, Options) {
  EXPECT_EQ(OperateOptionsOf<TopOptions>("top").interval, absl::Seconds(1));
  EXPECT_EQ(OperateOptionsOf<TopOptions>("top --interval 0.5").interval, absl::Milliseconds(500));
  EXPECT_EQ(ExitOf(Parse(Words("top --interval 0"))).status, 1);
}

}  // namespace
}  // namespace ddprun::launcher
