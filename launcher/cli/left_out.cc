// What a static ddprun has instead of other libraries' functions that cmake/left_out.txt names.
#include "base/check.h"

extern "C" {

// 0 is SQLite's "all is well"; gRPC's functions return nothing.
int ddprun_left_out_nothing() { return 0; }

[[noreturn]] void ddprun_left_out_never() {
  DDPRUN_CHECK(false, "a part that cmake/left_out.txt leaves out was called");
}

}  // extern "C"
