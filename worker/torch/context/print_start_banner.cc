#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "ddprun/context.h"
#include "ddprun/start_banner.h"

namespace ddprun {

void PrintStartBanner(Context& context, RunFacts facts) {
  if (!context.is_main()) return;
  facts.backend = context.backend();
  facts.processes = context.world_size();
  facts.restart_count = context.restart_count();
  facts.devices = absl::StrCat(context.world_size(), " × ",
                               c10::DeviceTypeName(context.device().type(), /*lower_case=*/true));
  // In one piece. A console that is gone doesn't end training.
  WriteAll(fileno(stderr), StartBanner(facts)).IgnoreError();
}

}  // namespace ddprun
