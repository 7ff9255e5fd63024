#ifndef DDPRUN_BASE_ABSEIL_RELEASE_H_
#define DDPRUN_BASE_ABSEIL_RELEASE_H_

#include "absl/base/config.h"

// DDPRUN_ABSEIL: the release that an installed ddprun was built with, of its CMake package. Names
// of another release have another namespace, so that calls of ddprun would end in undefined
// references.
#if defined(DDPRUN_ABSEIL) && \
    (!defined(ABSL_LTS_RELEASE_VERSION) || ABSL_LTS_RELEASE_VERSION != DDPRUN_ABSEIL)
#error \
    "this file includes another Abseil than the one that ddprun was built with (DDPRUN_ABSEIL); \
include ddprun's headers in a target without the other Abseil's folder among its includes: \
one program may have files with either"
#endif

#endif  // DDPRUN_BASE_ABSEIL_RELEASE_H_
