# The patchelf that relink asks for: the set's own, or the release that is new enough, built from source as the set builds its own.
{
  lib,
  patchelf,
  fetchurl,
}:

if lib.versionAtLeast patchelf.version "0.19.1" then
  patchelf
else
  patchelf.overrideAttrs {
    version = "0.19.1";
    src = fetchurl {
      url = "https://github.com/NixOS/patchelf/releases/download/0.19.1/patchelf-0.19.1.tar.bz2";
      hash = "sha256-LM4B3pNlOCn2q2iiDC7CdeHACpRhEHBKJ+ko0ubohxY=";
    };
    patches = [ ]; # of the older release
  }
