#ifndef DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_
#define DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_

namespace ddprun::launcher {

// launcher/marks/marks.py.
extern const char kMarksSource[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_
