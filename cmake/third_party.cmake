# The headers of Eigen and of third_party/ (fmt and xbyak), and what fmt does not define in its headers: compiled
# once, as every source would take half as long again with FMT_HEADER_ONLY.
add_library(mithril_third_party INTERFACE)
target_include_directories(mithril_third_party SYSTEM INTERFACE ${CMAKE_SOURCE_DIR}/third_party
                           ${MITHRIL_EIGEN})

add_library(mithril_fmt OBJECT ${CMAKE_SOURCE_DIR}/third_party/fmt/format.cc)
target_link_libraries(mithril_fmt PRIVATE mithril_third_party)
