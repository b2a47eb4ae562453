# The .deb, by `./dev deb`. Its prefix is /usr, whatever this tree is configured for.
set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME fluvial)
set(CPACK_PACKAGE_VENDOR Fluvial)
set(CPACK_PACKAGE_CONTACT "Fluvial's maintainers <maintainers@fluvial.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Federated and hierarchical aggregation of model updates")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Sites train on their own data; their updates flow up a tree of aggregators to\none coordinator, and the new model flows back down. One executable serves as\ncoordinator, aggregator and a site's agent.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "init-system-helpers (>= 1.54~), passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion, python3-numpy, python3-protobuf")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${CMAKE_CURRENT_SOURCE_DIR}/package/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/package/postinst
  ${CMAKE_CURRENT_SOURCE_DIR}/package/prerm ${CMAKE_CURRENT_SOURCE_DIR}/package/postrm)

# What Debian has a place and a form for: the licence, and changes (NEWS is ours; the changelog has the form alone).
find_program(FLUVIAL_GZIP gzip REQUIRED)
string(TIMESTAMP FLUVIAL_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(package/changelog.in ${made}/changelog @ONLY)
add_custom_command(
  OUTPUT ${made}/changelog.gz ${made}/NEWS.gz
  COMMAND ${FLUVIAL_GZIP} -9nc ${made}/changelog > ${made}/changelog.gz
  COMMAND ${FLUVIAL_GZIP} -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md > ${made}/NEWS.gz
  DEPENDS ${CMAKE_SOURCE_DIR}/CHANGELOG.md VERBATIM)
add_custom_target(fluvial_changelog ALL DEPENDS ${made}/changelog.gz)
install(FILES ${made}/changelog.gz ${made}/NEWS.gz package/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/fluvial)
include(CPack)
