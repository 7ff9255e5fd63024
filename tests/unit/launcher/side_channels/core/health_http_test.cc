#include "launcher/side_channels/core/health_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Answer(absl::string_view request) {
  return AnswerHealthRequest(request, "{\"status\":\"ok\"}").value_or("(waits)");
}

TEST(HealthHttp, AnswersItsPaths) {
  for (const char* path : {"/healthz", "/health", "/", "/healthz?verbose=1"}) {
    const std::string answer = Answer(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n")) << path;
    EXPECT_THAT(answer, HasSubstr("Content-Length: 15\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\n{\"status\":\"ok\"}"));
  }
  EXPECT_THAT(Answer("GET /healthz HTTP/1.0\n\n"), StartsWith("HTTP/1.1 200"));
  const std::string head = Answer("HEAD /healthz HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, Not(HasSubstr("status")));
}

TEST(HealthHttp, WaitsForTheEndOfTheHead) {
  EXPECT_EQ(Answer(""), "(waits)");
  EXPECT_EQ(Answer("GET /healthz HTTP/1.1\r\nHost: x\r\n"), "(waits)");
}

TEST(HealthHttp, RefusesAllElse) {
  const struct {
    std::string request;
    const char* status;
  } kCases[] = {
      {"GET /metrics HTTP/1.1\r\n\r\n", "404"},      {"POST /healthz HTTP/1.1\r\n\r\n", "405"},
      {"GET healthz HTTP/1.1\r\n\r\n", "400"},       {"GET /healthz HTTP/2\r\n\r\n", "400"},
      {"GET  /healthz HTTP/1.1\r\n\r\n", "400"},     {"\r\n\r\n", "400"},
      {std::string("\0\xff\x16\x03\n\n", 6), "400"}, {std::string(kHttpHeadBytesMax, 'x'), "431"}};
  for (const auto& c : kCases) {
    EXPECT_THAT(Answer(c.request), StartsWith(std::string("HTTP/1.1 ") + c.status)) << c.request;
  }
}

}  // namespace
}  // namespace ddprun::launcher
