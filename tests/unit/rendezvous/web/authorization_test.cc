#include "rendezvous/web/web_server.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

std::string Basic(const std::string& user_and_password) {
  return absl::StrCat("Basic ", absl::Base64Escape(user_and_password));
}

TEST(IsAuthorized, ABearerTokenOrTheBasicPasswordOfAnybody) {
  for (const std::string& good : {std::string("Bearer geheim"), std::string("bearer  geheim "),
                                  Basic("anybody:geheim"), Basic(":geheim")}) {
    EXPECT_TRUE(IsAuthorized(good, "geheim")) << good;
  }
  EXPECT_TRUE(IsAuthorized(Basic("user:a:b"), "a:b"));
}

TEST(IsAuthorized, NothingElse) {
  for (const std::string& bad :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string("Bearer geheim2"),
        std::string("geheim"), std::string("Digest geheim"), std::string("Basic geheim"),
        std::string("Basic %%%"), Basic("geheim"), Basic("geheim:"), Basic("user:Geheim")}) {
    EXPECT_FALSE(IsAuthorized(bad, "geheim")) << bad;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
