# Unpacks the Qwen3 tokenizer for the tests: its tokenizer.json is 11 MB, 1.4 MB as it lies in tests/data.
set(archive "${CMAKE_CURRENT_SOURCE_DIR}/data/tokenizer/qwen3/tokenizer.tar.xz")
set(directory "${PROJECT_BINARY_DIR}/tests/qwen3-tokenizer")
file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${directory}" TOUCH)
configure_file("${CMAKE_CURRENT_SOURCE_DIR}/data/tokenizer/qwen3/tokenizer_config.json" "${directory}/" COPYONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${archive}")
