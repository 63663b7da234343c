# The package as Python sees it, completed in MITHRIL_PYTHON_DIR: sources (copied, unless that is
# python/ of the source tree), the extension mithril._core, OpenBLAS, and generated Python.
file(GLOB binding_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/bindings/*.cc)
if(NOT binding_sources)
  return()
endif()
set(MITHRIL_PACKAGE_DIR ${MITHRIL_PYTHON_DIR}/mithril)

execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
                OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 3 CONFIG REQUIRED)

pybind11_add_module(_core MODULE NO_EXTRAS ${binding_sources})
target_link_libraries(_core PRIVATE mithril_engine)
set_target_properties(_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${MITHRIL_PACKAGE_DIR})
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Threads that Python ends are parked where the unwinding meets C++ (csrc/bindings/gil.cc).
  target_link_options(_core PRIVATE -Wl,--wrap=__gxx_personality_v0)
endif()
include(openblas)

# Sources, when the package is completed elsewhere than in the source tree.
set(staged "")
if(NOT MITHRIL_PYTHON_DIR STREQUAL "${CMAKE_SOURCE_DIR}/python")
  file(GLOB_RECURSE python_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/python
       ${CMAKE_SOURCE_DIR}/python/mithril/*)
  list(FILTER python_sources EXCLUDE REGEX "/(_generated|_openblas|__pycache__)/|/__init__\\.pyi$|\\.so$")
  foreach(source ${python_sources})
    set(copy ${MITHRIL_PYTHON_DIR}/${source})
    add_custom_command(OUTPUT ${copy} DEPENDS ${CMAKE_SOURCE_DIR}/python/${source}
                       COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/python/${source}
                               ${copy})
    list(APPEND staged ${copy})
  endforeach()
  add_custom_target(mithril_python_sources ALL DEPENDS ${staged})
  add_dependencies(_core mithril_python_sources)
endif()

# Python made from the op registry: `codegen/generate.py` writes it under
# mithril/models/_generated/, and stubs of what is imported when it is first used.
set(generator_sources codegen/generate.py codegen/argument_types.py codegen/package_stubs.py
    __init__.py errors.py models/__init__.py backends/__init__.py)
list(TRANSFORM generator_sources PREPEND ${CMAKE_SOURCE_DIR}/python/mithril/)
file(GLOB generator CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/mithril/codegen/generate.py)
if(generator)
  set(stamp ${CMAKE_BINARY_DIR}/generated_python.stamp)
  set(sanitizer_run_time "")
  if(MITHRIL_SANITIZE MATCHES "address")
    # Python is linked with neither: the sanitizer and, to see exceptions, the C++ run time.
    foreach(library libasan.so libstdc++.so)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library}
                      OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
      list(APPEND preload ${file})
    endforeach()
    list(JOIN preload ":" preload)
    set(sanitizer_run_time LD_PRELOAD=${preload} ASAN_OPTIONS=detect_leaks=0)
  endif()
  add_custom_command(
    OUTPUT ${stamp} DEPENDS _core ${generator_sources} ${staged}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${MITHRIL_PYTHON_DIR} ${sanitizer_run_time}
            ${Python_EXECUTABLE} -m mithril.codegen.generate
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp})
  add_custom_target(mithril_generated_python ALL DEPENDS ${stamp})
endif()

install(DIRECTORY ${MITHRIL_PACKAGE_DIR} DESTINATION . PATTERN "__pycache__" EXCLUDE)
