#include "bindings/gil.h"

namespace mithril::bindings {

thread_local PyThreadState* GilRelease::released_ = nullptr;

}  // namespace mithril::bindings

#if defined(__linux__)
#include <unistd.h>
#include <unwind.h>

// The personality is called for each frame that an exception or the end of a thread unwinds; the
// linker puts the wrapper in its place (cmake/python_package.cmake).
extern "C" {
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context);

// NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's name
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
  while ((actions & _UA_FORCE_UNWIND) != 0) pause();  // parked until the process ends
  return __real___gxx_personality_v0(version, actions, kind, exception, context);
}
}
#endif
