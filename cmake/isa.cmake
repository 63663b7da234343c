# One source, several instruction sets: csrc/backends/cpu/*/*_isa.cc are compiled once per set, with
# MITHRIL_ISA naming the namespace that the file opens (generic, avx2, avx512).
#
# Inline functions and templates that such a file shares with the rest of the engine exist once in
# the binary: the linker keeps the first copy that it meets. So these objects stand last in the
# engine's archive and in rising order, and no code of a newer set is reached on an older CPU by that
# way.
set(MITHRIL_ISA_OBJECTS "")

function(mithril_isa_objects isa)
  if(NOT isa_sources)
    return()
  endif()
  add_library(mithril_isa_${isa} OBJECT ${isa_sources})
  target_include_directories(mithril_isa_${isa} PRIVATE ${CMAKE_SOURCE_DIR}/csrc)
  target_compile_definitions(mithril_isa_${isa} PRIVATE MITHRIL_ISA=${isa})
  # Neither flag changes a result: they let square roots and roundings become vector instructions.
  target_compile_options(mithril_isa_${isa} PRIVATE $<$<CONFIG:Release>:-O3> -fno-math-errno
                         -fno-trapping-math ${ARGN})
  target_link_libraries(mithril_isa_${isa} PRIVATE mithril_third_party)
  set_target_properties(mithril_isa_${isa} PROPERTIES UNITY_BUILD OFF)
  set(MITHRIL_ISA_OBJECTS ${MITHRIL_ISA_OBJECTS} mithril_isa_${isa} PARENT_SCOPE)
endfunction()

file(GLOB isa_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/backends/cpu/*/*_isa.cc)
mithril_isa_objects(generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  mithril_isa_objects(avx2 -mavx2 -mfma -mf16c)
  mithril_isa_objects(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
endif()
