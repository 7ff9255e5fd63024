#include "launcher/side_channels/core/health_http.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

std::string Response(absl::string_view status, absl::string_view body, bool with_body,
                     absl::string_view more_headers = "") {
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                      "\r\nCache-Control: no-store\r\nConnection: close\r\n", more_headers, "\r\n",
                      with_body ? body : "");
}

std::string Refusal(absl::string_view status, absl::string_view more_headers = "") {
  return Response(status, absl::StrCat("{\"error\":\"", status, "\"}\n"), true, more_headers);
}

}  // namespace

std::optional<std::string> AnswerHealthRequest(absl::string_view received, absl::string_view body) {
  const absl::string_view head = received.substr(0, kHttpHeadBytesMax);
  const bool complete = absl::StrContains(head, "\r\n\r\n") || absl::StrContains(head, "\n\n");
  if (!complete) {
    if (received.size() < kHttpHeadBytesMax) return std::nullopt;
    return Refusal("431 Request Header Fields Too Large");
  }
  const absl::string_view line =
      absl::StripTrailingAsciiWhitespace(head.substr(0, head.find('\n')));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.") ||
      !absl::StartsWith(words[1], "/")) {
    return Refusal("400 Bad Request");
  }
  const absl::string_view path = words[1].substr(0, words[1].find('?'));
  if (path != "/healthz" && path != "/health" && path != "/") return Refusal("404 Not Found");
  if (words[0] != "GET" && words[0] != "HEAD") {
    return Refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  }
  return Response("200 OK", body, words[0] == "GET");
}

}  // namespace ddprun::launcher
