# Fat binaries and cubins: shared by the client and the emulated GPU. zstd and LZ4 are linked static, so
# that our libraries need nothing of the machine they are put on.
find_library(TNR_ZSTD_LIBRARY libzstd.a REQUIRED)
find_library(TNR_LZ4_LIBRARY liblz4.a REQUIRED)
add_library(tnr_fatbin STATIC ${CMAKE_CURRENT_LIST_DIR}/fatbin.cpp ${CMAKE_CURRENT_LIST_DIR}/fatbin_image.cpp
                              ${CMAKE_CURRENT_LIST_DIR}/cubin.cpp ${CMAKE_CURRENT_LIST_DIR}/elf.cpp
                              ${CMAKE_CURRENT_LIST_DIR}/bundle.cpp)
target_link_libraries(tnr_fatbin PRIVATE tnr_options ${TNR_ZSTD_LIBRARY} ${TNR_LZ4_LIBRARY})
