#ifndef DDPRUN_RENDEZVOUS_WEB_AUTHORIZATION_H_
#define DDPRUN_RENDEZVOUS_WEB_AUTHORIZATION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Whether an HTTP request's Authorization value ("" = it has none) has the secret: as "Bearer
// SECRET", which monitors send, or as the password of "Basic" with any user name, for which
// browsers ask. The time that it takes doesn't depend on the secret. Pure.
// Source: RFC 9110, 11.6.2; RFC 6750, 2.1; RFC 7617, 2.
bool IsAuthorized(absl::string_view authorization, const std::string& secret);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_AUTHORIZATION_H_
