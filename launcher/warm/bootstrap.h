#ifndef DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_
#define DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_

namespace ddprun::launcher {

// sitecustomize.py of workers that learn and of parked interpreters (launcher/warm/bootstrap.py).
extern const char kWarmBootstrap[];
// parked.py, which the latter execute from the same folder (launcher/warm/parked.py).
extern const char kWarmParked[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_
