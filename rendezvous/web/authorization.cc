#include "rendezvous/web/authorization.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "rendezvous/core/admission.h"

namespace ddprun::rendezvous {

bool IsAuthorized(absl::string_view authorization, const std::string& secret) {
  const size_t blank = authorization.find(' ');
  if (blank == absl::string_view::npos) return false;
  const absl::string_view scheme = authorization.substr(0, blank);
  const absl::string_view rest = absl::StripAsciiWhitespace(authorization.substr(blank));
  if (absl::EqualsIgnoreCase(scheme, "Bearer")) return SameSecret(secret, std::string(rest));
  std::string user_and_password;
  if (!absl::EqualsIgnoreCase(scheme, "Basic") || !absl::Base64Unescape(rest, &user_and_password)) {
    return false;
  }
  const size_t colon = user_and_password.find(':');
  return colon != std::string::npos && SameSecret(secret, user_and_password.substr(colon + 1));
}

}  // namespace ddprun::rendezvous
