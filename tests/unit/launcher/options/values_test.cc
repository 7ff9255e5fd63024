// The readers of single values.
#include "launcher/options/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace ddprun::launcher {
namespace {

Argument Text(const std::string& text) { return {.text = text, .source = "--option"}; }

TEST(ReadInteger, FollowsPython) {
  const struct {
    const char* text;
    std::optional<int64_t> value;
  } kCases[] = {
      {"0", 0},
      {"42", 42},
      {" 42\n", 42},
      {"+7", 7},
      {"-7", -7},
      {"1_000", 1000},
      {"007", 7},
      {"", std::nullopt},
      {" ", std::nullopt},
      {"+", std::nullopt},
      {"1_", std::nullopt},
      {"_1", std::nullopt},
      {"1__0", std::nullopt},
      {"1.5", std::nullopt},
      {"0x10", std::nullopt},
      {"- 1", std::nullopt},
      {"+-1", std::nullopt},
      {"1 2", std::nullopt},
      {"9223372036854775807", std::numeric_limits<int64_t>::max()},
      {"9223372036854775808", std::numeric_limits<int64_t>::max()},
      {"-9223372036854775809", std::numeric_limits<int64_t>::min()},
  };
  for (const auto& c : kCases) EXPECT_EQ(ReadInteger(c.text), c.value) << "'" << c.text << "'";
}

TEST(ReadBoolean, Words) {
  for (const char* yes : {"1", "true", "T", "yes", "Y", "on", "2", "-1"}) {
    EXPECT_EQ(ReadBoolean(yes), true) << yes;
  }
  for (const char* no : {"0", "false", "F", "no", "N", "off", "00"}) {
    EXPECT_EQ(ReadBoolean(no), false) << no;
  }
  for (const char* bad : {"", "maybe", "1.0", "truee"}) {
    EXPECT_EQ(ReadBoolean(bad), std::nullopt) << bad;
  }
}

TEST(DurationText, IsReadAsTheSame) {
  for (const char* text : {"0", "0.15", "0.5", "30", "90", "600", "5400", "1h", "168h"}) {
    EXPECT_EQ(DurationText(*ReadDuration(text)), text);
  }
}

TEST(ReadDuration, NumbersAndUnits) {
  EXPECT_EQ(ReadDuration("30"), absl::Seconds(30));
  EXPECT_EQ(ReadDuration(" 0.25 "), absl::Milliseconds(250));
  EXPECT_EQ(ReadDuration("1e2"), absl::Seconds(100));
  EXPECT_EQ(ReadDuration("150ms"), absl::Milliseconds(150));
  EXPECT_EQ(ReadDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(ReadDuration("-1"), absl::Seconds(-1));
  for (const char* bad : {"", "x", "inf", "-inf", "nan", "1 day", "5 5", "ms"}) {
    EXPECT_EQ(ReadDuration(bad), std::nullopt) << bad;
  }
}

TEST(ParseEndpoint, Table) {
  const struct {
    const char* text;
    const char* host;
    int port;  // -1 = none
  } kCases[] = {
      {"host0:29400", "host0", 29400},
      {"host0", "host0", -1},
      {" 10.0.0.1:1 ", "10.0.0.1", 1},
      {"[::1]:29400", "::1", 29400},
      {"[::1]", "::1", -1},
      {"::1:29500", "::1", 29500},
      {"::1", "::1", -1},
      {"fe80::1%eth0", "fe80::1%eth0", -1},
      {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
      {"my_host-1.example:00080", "my_host-1.example", 80},
      {"h:0", "h", 0},
      {"h:65535", "h", 65535},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(Text(c.text));
    ASSERT_TRUE(endpoint.ok()) << c.text << ": " << endpoint.status();
    EXPECT_EQ(endpoint->host, c.host) << c.text;
    EXPECT_EQ(endpoint->port.has_value() ? *endpoint->port : -1, c.port) << c.text;
  }
}

TEST(ParseEndpoint, Malformed) {
  for (const char* text : {"", ":1", "h:65536", "h:100000", "h:-1", "h:1x", "h:", "a b:1", "h/x:1",
                           "[]:1", "[::1:5", "[::1]x:5", "http://h:1"}) {
    const absl::Status status = ParseEndpoint(Text(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("--option '")) << text;
  }
}

TEST(ParseKeyValues, Table) {
  using Map = std::map<std::string, std::string>;
  EXPECT_EQ(*ParseKeyValues(Text("")), Map());
  EXPECT_EQ(*ParseKeyValues(Text(" a=1 , b = x=y ")), (Map{{"a", "1"}, {"b", "x=y"}}));
  EXPECT_EQ(*ParseKeyValues(Text("a=1,a=2")), (Map{{"a", "2"}}));
  for (const char* text : {"a", "=1", "a=", "a=b,", ",", "a=1,,b=2"}) {
    EXPECT_FALSE(ParseKeyValues(Text(text)).ok()) << text;
  }
}

TEST(ParseStreams, Table) {
  EXPECT_EQ(ParseStreams(Text("3"))->Of(7), 3U);
  const StreamChoice some = *ParseStreams(Text("0:1,12:3"));
  EXPECT_EQ(some.Of(0), 1U);
  EXPECT_EQ(some.Of(12), 3U);
  EXPECT_EQ(some.Of(1), 0U);
  for (const char* text : {"", "4", "-1", "33", "0:", ":1", "0:4", "0:1,", "a:1", "0:1:1", "+0:1",
                           "0:1 ,1:1", "99999999999:1"}) {
    EXPECT_FALSE(ParseStreams(Text(text)).ok()) << text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
