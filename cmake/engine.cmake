# The engine: one object library per folder of csrc/ (those that exist), and the archive
# `mithril_engine` of all of them.
set(MITHRIL_FOLDERS core tile infer ir ops model passes reference select plan emit runtime backends specialize)
set(MITHRIL_OBJECTS "")

# The presets compile several sources as one (CMAKE_UNITY_BUILD), which takes a third of the time.
# These share names of helpers that mean something else in each: they stay apart.
set(apart "csrc/(backends/|reference/|emit/c_|model/(outline|serialize_value)|ops/(batch_norm|conv_layer|conv_transpose|pool_layer)[.])")

function(mithril_folder name)
  if(NOT ARGN)
    return()
  endif()
  add_library(mithril_${name} OBJECT ${ARGN})
  target_include_directories(mithril_${name} PRIVATE ${CMAKE_SOURCE_DIR}/csrc)
  target_link_libraries(mithril_${name} PRIVATE mithril_third_party)
  set(sources_apart ${ARGN})
  list(FILTER sources_apart INCLUDE REGEX ${apart})
  set_source_files_properties(${sources_apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(MITHRIL_OBJECTS ${MITHRIL_OBJECTS} mithril_${name} PARENT_SCOPE)
endfunction()

# What printed kernels carry is the text that the engine itself compiles.
set(extern_lanes ${CMAKE_SOURCE_DIR}/csrc/tile/extern_lane.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${extern_lanes})
file(READ ${extern_lanes} MITHRIL_EXTERN_LANES)
configure_file(${CMAKE_SOURCE_DIR}/csrc/emit/extern_lanes.cc.in
               ${CMAKE_BINARY_DIR}/generated/extern_lanes.cc @ONLY)

# So are the texts of structured kernels.
file(GLOB kernel_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/reference/*.c
     ${CMAKE_SOURCE_DIR}/csrc/reference/dims.h ${CMAKE_SOURCE_DIR}/csrc/backends/c/*.inc
     ${CMAKE_SOURCE_DIR}/csrc/backends/c/*.c)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_files})
set(MITHRIL_KERNEL_FILES "")
foreach(file ${kernel_files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND MITHRIL_KERNEL_FILES "  if (name == \"${name}\") return R\"text(${text})text\";\n")
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/csrc/emit/kernel_files.cc.in
               ${CMAKE_BINARY_DIR}/generated/kernel_files.cc @ONLY)

foreach(folder ${MITHRIL_FOLDERS})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/${folder}/*.cc
       ${CMAKE_SOURCE_DIR}/csrc/${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "_isa[.]cc$")
  if(folder STREQUAL emit)
    list(APPEND sources ${CMAKE_BINARY_DIR}/generated/extern_lanes.cc
         ${CMAKE_BINARY_DIR}/generated/kernel_files.cc)
  endif()
  mithril_folder(${folder} ${sources})
endforeach()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/*.cc)
mithril_folder(root ${sources})

# Kernels gain from the full optimiser, the rest builds faster without it.
foreach(kernels mithril_reference mithril_backends)
  if(TARGET ${kernels})
    target_compile_options(${kernels} PRIVATE $<$<CONFIG:Release>:-O3>)
  endif()
endforeach()

# One archive, so that a binary takes what it refers to. The instruction sets stand last in it.
add_library(mithril_engine STATIC)
target_include_directories(mithril_engine INTERFACE ${CMAKE_SOURCE_DIR}/csrc)
foreach(objects mithril_fmt ${MITHRIL_OBJECTS} ${MITHRIL_ISA_OBJECTS})
  target_sources(mithril_engine PRIVATE $<TARGET_OBJECTS:${objects}>)
endforeach()
target_link_libraries(mithril_engine PUBLIC mithril_third_party Threads::Threads ${CMAKE_DL_LIBS})
